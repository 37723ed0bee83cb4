// One head in full: tokens on both axes, a value for each pair, and what the asking token looks at.

const MOST_LOOKS = 12;
const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';
let grid = null; // where the cells lie, in pixels of the page
let pointed = null; // {query, key} under the pointer
const drawn = document.createElement('canvas'); // the map without marks, so that pointing at it draws it no more
const LARGEST_CANVAS = 4096; // pixels a side

function setUpHead() {
  const canvas = byId('head');
  canvas.addEventListener('pointermove', (event) => { pointed = cellAt(event); mark(); });
  canvas.addEventListener('pointerleave', () => { pointed = null; mark(); });
  canvas.addEventListener('click', (event) => {
    const cell = cellAt(event);
    if (cell) change({ position: cell.query, key: cell.key });
  });
  canvas.addEventListener('keydown', (event) => {
    const move = MOVES[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const query = Math.max(0, Math.min(state.position + move[0], nTokens - 1));
    const key = Math.max(0, Math.min((state.key ?? chosenKey()) + move[1], query));
    change({ position: query, key });
  });
  new ResizeObserver(() => showHead()).observe(canvas.parentElement);
  views.push(showHead);
}

const chosenKey = () => state.key ?? largest(alphaRow(state.layer, state.head, state.position))[0];

function cellAt(event) {
  const key = Math.floor((event.offsetX - grid.left) / grid.cell);
  const query = Math.floor((event.offsetY - grid.top) / grid.cell);
  return query >= 0 && query < grid.n && key >= 0 && key <= query ? { query, key } : null;
}

function showHead() {
  const { layer, head, position } = state;
  byId('head-lead').textContent = `Layer ${layer}, head ${head}`
    + (config.n_kv_heads < config.n_heads ? `, with K and V of head ${Math.floor(head / (config.n_heads / config.n_kv_heads))}` : '')
    + '. Rows ask, columns are looked at; above the diagonal lies the future, which the causal mask hides. '
    + 'Point at a cell, or move with the arrow keys.';
  drawHead();
  mark();
  const row = alphaRow(layer, head, position);
  const shown = row.length <= MOST_LOOKS ? row : [...row].sort((a, b) => b[1] - a[1]).slice(0, MOST_LOOKS);
  const rest = row.length - shown.length;
  const left = 1 - shown.reduce((sum, pair) => sum + pair[1], 0);
  byId('looks-title').replaceChildren(token(pieceAt(position), '', 14), ' looks at');
  bars(byId('looks'), shown.map(([key, value]) => ({ piece: pieceAt(key), at: `${key}`, value, kind: key === state.key ? 'chosen' : '' })));
  byId('looks-rest').textContent = rest ? `and ${rest} more, ${share(left)} together` : 'α sums to 1.';
}

// The row that asks and the cell that is looked at, and its value in words.
function mark() {
  const { left, top, cell } = grid, { position } = state, canvas = byId('head'), context = canvas.getContext('2d');
  const at = pointed ?? { query: position, key: chosenKey() };
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(drawn, 0, 0);
  context.setTransform(grid.scale, 0, 0, grid.scale, 0, 0);
  outline(context, left, top + cell * position, cell * (position + 1), cell, styleOf('--faint'), 1);
  outline(context, left + cell * at.key, top + cell * at.query, cell, cell, styleOf('--warm'), 2);
  tellCell(at);
}

function tellCell({ query, key }) {
  const found = alphaRow(state.layer, state.head, query).find((pair) => pair[0] === key);
  byId('readout').replaceChildren(token(pieceAt(query)), ` (${query}) looks at `, token(pieceAt(key)), ` (${key}): `,
    ...(found ? ['α = ', element('strong', {}, found[1].toFixed(3))] : ['no longer in the ring']));
}

function drawHead() {
  const canvas = byId('head');
  const n = lastOf(step()) + 1;
  const measured = canvas.getContext('2d');
  const room = canvas.parentElement.clientWidth - 8; // its padding
  measured.font = `13px ${FONT}`;
  const pieces = Array.from({ length: n }, (_, at) => pieceAt(at));
  const widest = Math.min(Math.max(...pieces.map((piece) => measured.measureText(piece).width)), room < 480 ? 64 : 96);
  const left = Math.ceil(widest) + 12;
  const cell = Math.max(2, Math.min(44, Math.floor((room - left - 2) / n)));
  const isUpright = pieces.map((piece) => measured.measureText(piece).width <= cell - 4);
  const top = isUpright.every(Boolean) ? 24 : left;
  const width = left + cell * n + 2, height = top + cell * n + 2;
  const scale = Math.min(Math.max(2, window.devicePixelRatio || 1), LARGEST_CANVAS / height);
  grid = { left, top, cell, n, scale };
  for (const one of [canvas, drawn]) {
    one.width = Math.round(width * scale);
    one.height = Math.round(height * scale);
  }
  canvas.style.inlineSize = `${width}px`;
  canvas.setAttribute('aria-label', `α of layer ${state.layer}, head ${state.head}, ${n} tokens; arrow keys move`);
  const context = drawn.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = styleOf('--paper');
  context.fillRect(0, 0, width, height);
  drawCells(context, n);
  drawLabels(context, pieces, widest, isUpright);
}

function drawCells(context, n) {
  const { left, top, cell } = grid, side = cell - 1, [future, gone] = [styleOf('--future'), styleOf('--gone')];
  if (cell <= 8) { // many: without gaps, as in a small map
    copyMap(state.layer, state.head, context, left, top, n, n * cell);
    return;
  }
  const paint = (query, key, style) => {
    context.fillStyle = style;
    context.fillRect(left + key * cell, top + query * cell, side, side);
  };
  for (let query = 0; query < n; query++) {
    const row = alphaRow(state.layer, state.head, query);
    for (let key = 0; key < n; key++) if (key > query || row.length <= query) paint(query, key, key > query ? future : gone);
    for (const [key, alpha] of row) {
      paint(query, key, css(colour(alpha)));
      if (cell >= 36) drawValue(context, alpha, left + (key + 0.5) * cell, top + (query + 0.5) * cell);
    }
  }
}

function drawValue(context, alpha, x, y) {
  const [r, g, b] = colour(alpha);
  context.font = `11px ${FONT}`;
  context.fillStyle = 0.299 * r + 0.587 * g + 0.114 * b > 130 ? '#111418' : '#f4f7fa';
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(alpha < 0.0005 ? '≈0' : share(alpha), x, y);
}

function drawLabels(context, pieces, widest, isUpright) {
  const { left, top, cell } = grid;
  const size = Math.max(9, Math.min(13, cell)), every = Math.ceil((size + 1) / cell);
  context.font = `${size}px ${FONT}`;
  context.textBaseline = 'middle';
  pieces.forEach((piece, at) => {
    if (at % every && at !== state.position) return;
    if (every > 1 && at !== state.position && Math.abs(at - state.position) < every) return; // room for the asking one
    const text = fitted(context, piece, widest), middle = (at + 0.5) * cell;
    context.fillStyle = styleOf(at === state.position ? '--ink' : '--faint');
    context.textAlign = 'right';
    context.fillText(text, left - 6, top + middle);
    context.save();
    context.translate(left + middle, top - 6);
    context.textAlign = isUpright[at] ? 'center' : 'left';
    if (isUpright[at]) context.translate(0, -7); else context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  });
}

function fitted(context, piece, room) {
  let letters = [...piece];
  if (context.measureText(piece).width <= room) return piece;
  while (letters.length > 1 && context.measureText(`${letters.join('')}…`).width > room) letters = letters.slice(0, -1);
  return `${letters.join('')}…`;
}

function outline(context, x, y, width, height, paint, thickness) {
  context.strokeStyle = paint;
  context.lineWidth = thickness;
  context.strokeRect(x - 0.5, y - 0.5, width, height);
}
