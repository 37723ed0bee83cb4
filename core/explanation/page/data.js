// The trace: what page_data.py wrote, and what follows from it.

const trace = JSON.parse(document.getElementById('data').textContent);
const { config, steps, rings } = trace;
const nTokens = trace.ids.length;
const stepOf = []; // of each position
steps.forEach(([first, count], at) => { for (let i = 0; i < count; i++) stepOf[first + i] = at; });

const lastOf = (step) => steps[step][0] + steps[step][1] - 1;
const ringOf = (layer) => rings[trace.ring_of_layer[layer]];
const ringState = (layer, step) => ringOf(layer).states[step];

// The positions that a query sees in a ring, ascending, and where its row begins among all rows.
for (const ring of rings) {
  let start = 0;
  ring.rows = stepOf.map((step, query) => {
    const { reused, added } = ring.states[step];
    const keys = [...reused, ...added].filter((key) => key <= query).sort((a, b) => a - b);
    const row = { keys, start };
    start += keys.length;
    return row;
  });
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const VALUES = new Uint8Array(128);
for (let i = 0; i < 64; i++) VALUES[DIGITS.charCodeAt(i)] = i;

const LARGEST = 4095; // the level of α = 1

// α in levels of 1/LARGEST, of a column among those that the query sees.
function levelAt(layer, head, query, column) {
  const text = trace.alpha[layer][head];
  const at = 2 * (ringOf(layer).rows[query].start + column);
  return VALUES[text.charCodeAt(at)] * 64 + VALUES[text.charCodeAt(at + 1)];
}

// Pairs [key, α] of one query.
function alphaRow(layer, head, query) {
  return ringOf(layer).rows[query].keys.map((key, column) => [key, levelAt(layer, head, query, column) / LARGEST]);
}

// The best tokens at a position, [{id, p}, …].
function bestAt(found, position) {
  const from = position * found.top;
  return Array.from({ length: found.top }, (_, i) => ({ id: found.ids[from + i], p: found.probabilities[from + i] }));
}

const NAMES = { ' ': '␣', '\n': '⏎', '\r': '␍', '\t': '⇥' };
const HIDDEN = /[\s\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029]/gu;
const codeName = (c) => NAMES[c] ?? `<${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}>`;

// A token as a reader can tell it from others: blanks and what cannot be seen have names.
const visible = (piece) => (piece === '' ? '∅' : piece.replace(HIDDEN, codeName));
// The same within a text, where blanks are blanks.
const readable = (piece) => piece.replace(HIDDEN, (c) => (c === ' ' ? c : codeName(c)));
const pieceAt = (position) => visible(trace.pieces[position]);
const pieceOf = (id) => visible(trace.texts[id] ?? '');
const nextOf = (position) => (position + 1 < nTokens ? trace.ids[position + 1] : steps[stepOf[position]][2]);
const quoted = (piece) => `「${piece}」`;
const cut = (piece, most) => ([...piece].length > most ? `${[...piece].slice(0, most - 1).join('')}…` : piece);
const share = (p) => (p < 0.0005 ? '<0.001' : p.toFixed(p < 0.0995 ? 3 : 2));
const count = (n) => n.toLocaleString('en');

// Positions as "2–5, 9".
function span(positions) {
  const runs = [];
  for (const at of positions) {
    const run = runs.at(-1);
    if (run && at === run[1] + 1) run[1] = at; else runs.push([at, at]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(', ');
}
