// Small maps of α, one for each layer and head.

const mapButtons = [];

function setUpMaps() {
  const rows = [];
  for (let layer = 0; layer < config.n_layers; layer++) {
    const label = element('span', { class: 'map-label' }, `${layer}`);
    if (ringOf(layer).is_window) label.append(element('small', {}, `window ${count(ringOf(layer).capacity)}`));
    const cells = [];
    for (let head = 0; head < config.n_heads; head++) {
      const canvas = element('canvas', { width: nTokens, height: nTokens, 'aria-hidden': 'true' });
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

let drawnStep = null; // so that going from head to head draws none anew

function showMaps() {
  check(mapButtons, state.layer * config.n_heads + state.head);
  if (drawnStep === `${state.position}`) return;
  drawnStep = `${state.position}`;
  mapButtons.forEach((button, at) => {
    const [layer, head] = [Math.floor(at / config.n_heads), at % config.n_heads];
    drawMap(button.firstChild, layer, head);
    const [key, alpha] = largest(alphaRow(layer, head, state.position));
    button.setAttribute('aria-label',
      `layer ${layer}, head ${head}: ${pieceAt(state.position)} looks most at ${pieceAt(key)}, ${share(alpha)}`);
  });
}

const largest = (row) => row.reduce((best, pair) => (pair[1] > best[1] ? pair : best));

function drawMap(canvas, layer, head) {
  const context = canvas.getContext('2d');
  const image = context.createImageData(nTokens, nTokens);
  const gone = rgb(styleOf('--gone'));
  const put = (query, key, channels) => image.data.set([...channels, 255], 4 * (query * nTokens + key));
  for (let query = 0; query <= lastOf(step()); query++) {
    const { keys } = ringOf(layer).rows[query];
    for (let key = 0; key <= query && keys.length <= query; key++) put(query, key, gone);
    keys.forEach((key, column) => put(query, key, colour(alphaAt(layer, head, query, column))));
  }
  context.putImageData(image, 0, 0);
}
