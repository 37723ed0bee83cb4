// The ring of the layer, drawn as one: a sector for each slot, free ones beyond the last ever taken as one gap.

const SIZE = 460, OUTER = 196, INNER = 128, MIDDLE = 162;
const KINDS = { sink: 'sink, never overwritten', kept: 'kept, read again', new: 'computed in this step',
  next: 'overwritten next', free: 'free' };

function setUpRing() {
  byId('ring').setAttribute('viewBox', `0 0 ${SIZE} ${SIZE}`);
  views.push(showRing);
}

function showRing() {
  const ring = ringOf(state.layer), now = ringState(state.layer, step());
  const layers = trace.ring_of_layer.flatMap((kind, layer) => (rings[kind] === ring ? [layer] : []));
  const kindOf = ring.is_window ? `a window of ${count(ring.capacity)} tokens, the model’s own` : `the context, ${count(ring.capacity)} tokens`;
  byId('ring-lead').textContent = `${layers.length > 1 ? 'Layers' : 'Layer'} ${span(layers)}: ${kindOf}`
    + (ring.sinks ? `, of which the first ${ring.sinks} are sinks` : '')
    + `; ${size(ring.nbytes)} of K and V a layer. Q is not kept: no later step asks for it.`;
  const used = Math.max(...ring.states.map((past) => Math.max(past.held.length, (past.next_slot ?? -1) + 1)));
  const shown = Math.min(ring.capacity, Math.max(used, 8)), hasGap = shown < ring.capacity;
  const turn = (2 * Math.PI * (hasGap ? 0.86 : 1)) / shown; // of one slot
  const parts = [];
  for (let slot = 0; slot < shown; slot++) parts.push(sector(slot, turn, kindOfSlot(slot, ring, now), now.held[slot] ?? -1));
  if (hasGap) parts.push(...gapParts(ring.capacity - shown, turn * shown));
  if (now.next_slot !== null && now.next_slot < shown) parts.push(pointer((now.next_slot + 0.5) * turn));
  parts.push(...middleParts(ring, now));
  byId('ring').replaceChildren(...parts);
  byId('ring').classList.toggle('dense', turn * OUTER < 5);
  showLegend(ring, now, shown);
  showStory(now);
}

function kindOfSlot(slot, ring, now) {
  const position = now.held[slot] ?? -1;
  if (position < 0) return 'free';
  if (position === now.overwrites_next) return 'next';
  if (now.added.includes(position)) return slot < ring.sinks ? 'new sink' : 'new';
  return slot < ring.sinks ? 'sink' : 'kept';
}

const at = (radius, angle) => [SIZE / 2 + radius * Math.sin(angle), SIZE / 2 - radius * Math.cos(angle)];
const point = (radius, angle) => at(radius, angle).map((v) => v.toFixed(1)).join(' ');

function sector(slot, turn, kind, position) {
  const gap = turn * OUTER < 5 ? 0 : 0.008, from = slot * turn + gap / 2, to = (slot + 1) * turn - gap / 2;
  const wide = to - from > Math.PI ? 1 : 0;
  const d = `M${point(OUTER, from)}A${OUTER} ${OUTER} 0 ${wide} 1 ${point(OUTER, to)}L${point(INNER, to)}`
    + `A${INNER} ${INNER} 0 ${wide} 0 ${point(INNER, from)}Z`;
  const label = position < 0 ? `slot ${slot}: free` : `slot ${slot}: token ${position} ${pieceAt(position)}`;
  const group = svg('g', { class: `slot ${kind}` }, svg('path', { d }, svg('title', {}, label)));
  if (position >= 0 && turn * MIDDLE >= 9) group.append(slotText(pieceAt(position), (from + to) / 2, turn * MIDDLE));
  if (slot % numbered(turn) === 0) {
    const [x, y] = at(OUTER + 11, (from + to) / 2);
    group.append(svg('text', { x: x.toFixed(1), y: y.toFixed(1), class: 'slot-number' }, `${slot}`));
  }
  return group;
}

// Every which slot has its number told, so that they do not touch.
const numbered = (turn) => [1, 10, 20, 50, 100].find((every) => every * turn * OUTER >= (every === 1 ? 15 : 28)) ?? 500;

// Upright where there is room, else along the radius and never upside down.
function slotText(piece, angle, room) {
  const [x, y] = at(MIDDLE, angle);
  const text = svg('text', { class: 'slot-text' });
  const columns = [...piece].reduce((sum, c) => sum + (c.codePointAt(0) > 0x2e7f ? 2 : 1), 0);
  if (room >= 22 && columns * 7.5 <= room - 4) {
    text.setAttribute('x', x.toFixed(1));
    text.setAttribute('y', y.toFixed(1));
    text.textContent = piece;
    return text;
  }
  const degrees = (angle * 180) / Math.PI - 90, flipped = angle > Math.PI ? degrees + 180 : degrees;
  const height = Math.min(14, room - 1.5);
  text.setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${flipped.toFixed(1)})`);
  text.style.fontSize = `${height.toFixed(1)}px`;
  text.textContent = shortened(piece, 60 / (height * 0.54));
  return text;
}

// As much of a piece as so many columns hold.
function shortened(piece, columns) {
  let used = 0, kept = '';
  for (const c of piece) {
    used += c.codePointAt(0) > 0x2e7f ? 2 : 1;
    if (used > columns) return `${kept.slice(0, -1)}…`;
    kept += c;
  }
  return kept;
}

function gapParts(free, from) {
  const to = 2 * Math.PI, radius = MIDDLE;
  const path = svg('path', { class: 'gap', d: `M${point(radius, from + 0.06)}A${radius} ${radius} 0 0 1 ${point(radius, to - 0.06)}` });
  const [x, y] = at(OUTER + 4, (from + to) / 2);
  return [path, svg('text', { x: x.toFixed(1), y: y.toFixed(1), class: 'slot-number' }, `${count(free)} more, free`)];
}

// Where the next token goes: an arrow from within.
function pointer(angle) {
  return svg('path', { class: 'pointer', d: `M${point(INNER - 3, angle)}L${point(INNER - 17, angle - 0.07)}L${point(INNER - 17, angle + 0.07)}Z` });
}

function middleParts(ring, now) {
  const held = now.held.filter((position) => position >= 0).length;
  const line = (y, text, kind) => svg('text', { x: SIZE / 2, y: SIZE / 2 + y, class: kind }, text);
  const next = now.next_slot === null ? 'full: the text ends' : `next → slot ${now.next_slot}`;
  return [line(-14, `${count(held)}`, 'ring-count'), line(14, `of ${count(ring.capacity)} slots`, 'ring-note'), line(38, next, 'ring-note')];
}

function showLegend(ring, now, shown) {
  const there = new Set(Array.from({ length: shown }, (_, slot) => kindOfSlot(slot, ring, now)).flatMap((kind) => kind.split(' ')));
  byId('ring-legend').replaceChildren(...Object.entries(KINDS).filter(([kind]) => there.has(kind)).map(([kind, what]) =>
    element('li', {}, element('span', { class: `patch slot-${kind}` }), what)));
}

function showStory(now) {
  const told = (title, ...what) => element('div', {}, element('dt', {}, title), element('dd', {}, ...what));
  const tokens = (positions) => `${positions.length === 1 ? 'token' : 'tokens'} ${span(positions)}`;
  const over = now.overwrites_next === null ? [] : [', over ', token(pieceAt(now.overwrites_next)), ` (${now.overwrites_next})`];
  byId('ring-story').replaceChildren(
    told('computed and written', `k and v of ${tokens(now.added)}`),
    told('read, not computed again', now.reused.length ? `k and v of ${tokens(now.reused)}` : 'none: the ring was empty'),
    ...(now.overwritten.length ? [told('overwritten', tokens(now.overwritten))] : []),
    told('the next token', ...(now.next_slot === null ? ['has no place: the ring is full and does not slide'] : [`goes to slot ${now.next_slot}`, ...over])),
  );
}

function size(nbytes) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  for (; nbytes >= 1024 && unit < 3; unit++) nbytes /= 1024;
  return `${unit ? nbytes.toFixed(1) : nbytes} ${units[unit]}`;
}
