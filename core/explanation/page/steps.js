// Where we are: which token asks, in which layer and head. The views follow.

const state = { ...trace.start, key: null };
const views = [];

function change(part) {
  Object.assign(state, part);
  views.forEach((view) => view());
}

const step = () => stepOf[state.position];
const toStep = (to) => change({ position: lastOf(Math.max(0, Math.min(to, steps.length - 1))), key: null });

const LONG_TEXT = 60, LONGEST_TEXT = 300; // letters of the heading

function showText() {
  const drawn = nTokens - trace.prompt_length;
  let room = LONGEST_TEXT;
  const parts = trace.pieces.map((piece, at) => {
    const text = [...readable(piece)].slice(0, Math.max(0, room)).join('');
    room -= [...readable(piece)].length;
    return element('bdi', { class: at < trace.prompt_length ? '' : 'drawn' }, text);
  });
  byId('text').replaceChildren(...parts, ...(room < 0 ? ['…'] : []));
  byId('text').classList.toggle('long', room < LONGEST_TEXT - LONG_TEXT);
  byId('flow-asks').replaceChildren(token(pieceAt(trace.start.position)));
  byId('model').textContent = `${trace.model} (${config.architecture}): ${count(trace.prompt_length)} tokens of prompt`
    + (drawn ? `, ${count(drawn)} drawn` : '') + '. Every number is the model’s own.';
  const names = { d_model: 'width', d_k: 'of a key', d_v: 'of a value', n_heads: 'heads', n_kv_heads: 'heads of K and V',
    n_layers: 'layers', d_ff: 'feed-forward', d_vocab: 'tokens known' };
  byId('sizes').replaceChildren(...Object.entries(names).map(([name, what]) =>
    element('div', {}, element('dt', {}, symbol(name)), element('dd', {}, count(config[name]), element('small', {}, what)))));
}

// d_model with its index below.
function symbol(name) {
  const [letter, index] = name.replace('n_kv_heads', 'h_KV').replace('n_heads', 'h').replace('n_layers', 'layers').split('_');
  const shown = element('span', { class: 'symbol' }, letter);
  if (index) shown.append(element('sub', {}, index));
  return shown;
}

const tokenButtons = trace.pieces.map((piece, at) => element('button', {
  type: 'button', role: 'radio', class: at < trace.prompt_length ? 'chip' : 'chip drawn',
  'aria-label': `token ${at}, ${visible(piece)}, id ${trace.ids[at]}`,
}, element('bdi', {}, visible(piece)), element('small', {}, `${at}`)));

function setUpSteps() {
  byId('tokens').append(...tokenButtons);
  radioGroup(byId('tokens'), tokenButtons, 1, (at) => change({ position: at, key: null }));
  byId('step').max = steps.length - 1;
  byId('slider').hidden = steps.length < 2;
  byId('step').addEventListener('input', (event) => toStep(Number(event.target.value)));
  byId('back').addEventListener('click', () => toStep(step() - 1));
  byId('forth').addEventListener('click', () => toStep(step() + 1));
  views.push(showStep);
}

function showStep() {
  const at = step();
  check(tokenButtons, state.position);
  tokenButtons.forEach((button, position) => button.classList.toggle('later', position > lastOf(at)));
  byId('step').value = at;
  byId('back').disabled = at === 0;
  byId('forth').disabled = at === steps.length - 1;
  const n = steps[at][1];
  const what = n > 1 ? `${n} tokens at once` : `token ${state.position} alone`;
  byId('step').setAttribute('aria-valuetext', `step ${at + 1} of ${steps.length}, ${what}`);
  byId('where').replaceChildren(
    element('strong', {}, `Step ${at + 1} of ${steps.length}`), ` · ${what} · `, token(pieceAt(state.position)),
    ` asks in layer ${state.layer}, head ${state.head} → `, token(pieceOf(nextOf(state.position)), 'drawn'));
}
