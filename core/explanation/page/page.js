// Everything together, and drawn anew where the reader's system turns light, dark or to paper.

function drawAll() {
  readColours();
  drawnStep = null;
  drawScale();
  change({});
}

showText();
setUpSteps();
setUpMaps();
setUpHead();
setUpLens();
setUpRing();
drawAll();
for (const query of ['(prefers-color-scheme: dark)', 'print']) window.matchMedia(query).addEventListener('change', drawAll);
window.addEventListener('beforeprint', drawAll);
