// Elements: made here only, and with text set as text, so that no token can become markup.

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const LONGEST_TOKEN = 24; // letters within a line; in full among the tokens

const token = (piece, kind = '', longest = LONGEST_TOKEN) => element('bdi', { class: `token ${kind}` }, cut(piece, longest));

// A bar for each of some shares, drawn on one scale.
function bars(list, rows) {
  const largest = Math.max(...rows.map((row) => row.value), 1e-6);
  list.replaceChildren(...rows.map((row) => {
    const bar = element('span', { class: 'bar-fill' });
    bar.style.inlineSize = `${(100 * row.value) / largest}%`;
    const name = element('span', { class: 'name' }, token(row.piece, '', 14), element('span', { class: 'at' }, row.at ?? ''));
    return element('li', { class: row.kind ?? '' }, name, element('span', { class: 'bar-room' }, bar),
      element('span', { class: 'number' }, share(row.value)));
  }));
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// A group of radio buttons in rows of `columns`: one is in the tab order, arrow keys go to the others and choose them.
function radioGroup(group, buttons, columns, choose) {
  group.addEventListener('keydown', (event) => {
    const at = buttons.indexOf(event.target);
    const move = MOVES[event.key];
    const to = move ? at + move[0] * columns + move[1] : { Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (buttons[to] && !buttons[to].hidden) { choose(to); buttons[to].focus(); }
  });
  buttons.forEach((button, at) => button.addEventListener('click', () => choose(at)));
}

function check(buttons, chosen) {
  buttons.forEach((button, at) => {
    button.setAttribute('aria-checked', at === chosen);
    button.tabIndex = at === chosen ? 0 : -1;
  });
}
