// The colours of α, as the style sheet has them for light, dark and print.

let stops = [];
const palette = new Uint32Array(LARGEST + 1); // the pixel of each level of α

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function readColours() {
  stops = [0, 1, 2, 3].map((at) => rgb(styleOf(`--scale-${at}`)));
  palette.forEach((_, level) => { palette[level] = pixel(colour(level / LARGEST)); });
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// By the root of α, so that small weights can be told apart too.
function colour(alpha) {
  const along = Math.sqrt(alpha) * (stops.length - 1);
  const at = Math.min(Math.floor(along), stops.length - 2);
  return stops[at].map((from, i) => Math.round(from + (stops[at + 1][i] - from) * (along - at)));
}

// As the bytes of an image hold it, red first.
const pixel = (channels) => new Uint32Array(new Uint8Array([...channels, 255]).buffer)[0];
const css = (channels) => `rgb(${channels.join(' ')})`;

function drawScale() {
  const marks = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1].map((alpha) => {
    const patch = element('span', { class: 'patch' });
    patch.style.background = css(colour(alpha));
    return element('span', {}, patch, `${alpha}`);
  });
  const gone = element('span', {}, element('span', { class: 'patch gone' }), 'no longer in the ring');
  const known = rings.some((ring) => ring.states.some((state) => state.overwritten.length)) ? [gone] : [];
  byId('scale').replaceChildren('α', ...marks, ...known);
}
