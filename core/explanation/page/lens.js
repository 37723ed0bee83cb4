// The logit lens: the best tokens if the model ended after each layer.

function setUpLens() {
  views.push(showLens);
}

function showLens() {
  const { position } = state, next = nextOf(position), drawn = position >= trace.prompt_length - 1;
  byId('lens-lead').replaceChildren('After ', token(pieceAt(position)), drawn ? ' was drawn ' : ' comes ',
    token(pieceOf(next), 'drawn'), ', marked where it leads.');
  const most = Math.max(...trace.lens.map((layer) => bestAt(layer, position)[0].p), 1e-6);
  byId('lens').replaceChildren(...trace.lens.map((layer, at) => {
    const [first, ...others] = bestAt(layer, position);
    const bar = element('span', { class: 'bar-fill' });
    bar.style.inlineSize = `${(100 * first.p) / most}%`;
    return element('li', { class: first.id === next ? 'chosen' : '' },
      element('span', { class: 'lens-label' }, at ? `layer ${at - 1}` : 'embedding'), token(pieceOf(first.id), '', 14),
      element('span', { class: 'bar-room' }, bar), element('span', { class: 'number' }, share(first.p)),
      element('span', { class: 'others' }, ...others.flatMap(({ id }) => [token(pieceOf(id), '', 10), ' '])));
  }));
  byId('best-title').replaceChildren('p = softmax(x·W', element('sub', {}, 't'), ')');
  bars(byId('best'), bestAt(trace.best, position).map(({ id, p }) => (
    { piece: pieceOf(id), value: p, kind: id === next ? 'chosen' : '' })));
}
