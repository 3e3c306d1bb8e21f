// Draws the figures of #figures into their .plot elements, again whenever their width or the colour scheme changes.

const figures = JSON.parse(document.getElementById("figures").textContent);
const DRAW = { curves: drawCurves, heat: drawHeat, bars: drawBars };

function draw(plot) {
  const figure = figures[plot.dataset.figure];
  if (!plot.clientWidth) return;
  plot.replaceChildren();
  DRAW[figure.kind](plot, figure);
}

const plots = [...document.querySelectorAll(".plot")];
const widths = new Map();
const watch = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    if (widths.get(target) === target.clientWidth) continue;
    widths.set(target, target.clientWidth);
    draw(target);
  }
});
for (const plot of plots) watch.observe(plot);
dark.addEventListener("change", () => plots.forEach(draw));
for (const one of document.querySelectorAll("[data-tip]")) {
  listen(one, (event) => (event ? one.dataset.tip.split("\n") : null));
  one.addEventListener("focus", () => {
    const box = one.getBoundingClientRect();
    show(one.dataset.tip.split("\n"), { clientX: box.right, clientY: box.bottom });
  });
  one.addEventListener("blur", hide);
}
