// Small maps of α, one for each layer and head.

const mapButtons = [];
const MAP_SIDE = nTokens * Math.max(1, Math.ceil(96 / nTokens)); // pixels; fine enough for what smooths them, as PDF readers do
const map = element('canvas', { width: nTokens, height: nTokens }); // a pixel for each pair

function setUpMaps() {
  const rows = [];
  for (let layer = 0; layer < config.n_layers; layer++) {
    const label = element('span', { class: 'map-label' }, `${layer}`);
    if (ringOf(layer).is_window) label.append(element('small', {}, `window ${count(ringOf(layer).capacity)}`));
    const cells = [];
    for (let head = 0; head < config.n_heads; head++) {
      const canvas = element('canvas', { width: MAP_SIDE, height: MAP_SIDE, 'aria-hidden': 'true' });
      const button = element('button', { type: 'button', role: 'radio', class: 'map' }, canvas);
      mapButtons.push(button);
      cells.push(button);
    }
    rows.push(element('div', { class: 'map-row', role: 'presentation' }, label, ...cells));
  }
  const heads = Array.from({ length: config.n_heads }, (_, head) => element('span', { class: 'map-head' }, `${head}`));
  byId('maps').style.setProperty('--columns', config.n_heads);
  byId('maps').classList.toggle('many', config.n_layers > 8);
  byId('maps').append(element('div', { class: 'map-row', 'aria-hidden': 'true' }, element('span', { class: 'map-label' }, 'layer'), ...heads), ...rows);
  radioGroup(byId('maps'), mapButtons, config.n_heads, (at) => change({
    layer: Math.floor(at / config.n_heads), head: at % config.n_heads }));
  views.push(showMaps);
}

let drawnStep = null, describedPosition = null; // so that nothing is done twice

function showMaps() {
  check(mapButtons, state.layer * config.n_heads + state.head);
  const draw = drawnStep !== step(), describe = describedPosition !== state.position;
  [drawnStep, describedPosition] = [step(), state.position];
  mapButtons.forEach((button, at) => {
    const [layer, head] = [Math.floor(at / config.n_heads), at % config.n_heads];
    if (draw) copyMap(layer, head, button.firstChild.getContext('2d'), 0, 0, nTokens, MAP_SIDE);
    if (!describe) return;
    const [key, alpha] = largest(alphaRow(layer, head, state.position));
    button.setAttribute('aria-label',
      `layer ${layer}, head ${head}: ${pieceAt(state.position)} looks most at ${pieceAt(key)}, ${share(alpha)}`);
  });
}

const largest = (row) => row.reduce((best, pair) => (pair[1] > best[1] ? pair : best));

// The pairs of the first n tokens, as squares that fill a larger one.
function copyMap(layer, head, context, left, top, n, side) {
  drawMap(layer, head);
  context.fillStyle = styleOf('--future');
  context.fillRect(left, top, side, side);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, 0, 0, n, n, left, top, side, side);
}

function drawMap(layer, head) {
  const context = map.getContext('2d');
  const image = context.createImageData(nTokens, nTokens);
  const pixels = new Uint32Array(image.data.buffer);
  const gone = pixel(rgb(styleOf('--gone')));
  for (let query = 0; query <= lastOf(step()); query++) {
    const { keys } = ringOf(layer).rows[query];
    if (keys.length <= query) pixels.fill(gone, query * nTokens, query * nTokens + query + 1);
    keys.forEach((key, column) => { pixels[query * nTokens + key] = palette[levelAt(layer, head, query, column)]; });
  }
  context.putImageData(image, 0, 0);
}
