// Bars: what a whole of each row is made of, one part after the other.

const BAR = { row: 42, high: 16, left: 8, right: 16, top: 4, foot: 44 };

function drawBars(plot, figure) {
  const width = plot.clientWidth, room = width - BAR.left - BAR.right;
  const bottom = BAR.top + BAR.row * figure.rows.length, height = bottom + BAR.foot;
  const totals = figure.rows.map((row) => row.values.reduce((sum, one) => sum + one, 0)), most = Math.max(...totals) || 1;
  const x = (value) => BAR.left + (room * value) / most;
  const svg = make(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": figure.title });
  for (const value of even(0, most, room / 110)) {
    make(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: BAR.top, y2: bottom });
    const at = { x: Math.min(x(value), width - 30), y: bottom + 17, "text-anchor": value ? "middle" : "start" };
    make(svg, "text", at, number(value));
  }
  make(svg, "path", { class: "axis", d: `M${BAR.left} ${BAR.top}V${bottom}H${width - BAR.right}` });
  make(svg, "text", { class: "title", x: width / 2, y: height - 6, "text-anchor": "middle" }, figure.label);
  figure.rows.forEach((row, place) => {
    const top = BAR.top + BAR.row * place, total = `${number(totals[place])} ${figure.unit}`;
    make(svg, "text", { class: "title", x: BAR.left + 4, y: top + 14 }, fit(row.name, room - 12 - 8 * total.length));
    make(svg, "text", { class: "title", x: width - BAR.right, y: top + 14, "text-anchor": "end" }, total);
    let from = 0;
    row.values.forEach((value, part) => {
      const [left, right] = [x(from), x(from + value)];
      make(svg, "rect", { class: `f${part % 8}`, x: left, y: top + 20, width: right - left, height: BAR.high });
      from += value;
    });
  });
  listen(svg, (event) => {
    const place = event ? Math.floor((event.clientY - svg.getBoundingClientRect().top - BAR.top) / BAR.row) : -1;
    return figure.rows[place] ? describeBar(figure, figure.rows[place], totals[place]) : null;
  });
  const legend = add(plot, "ul", "legend");
  figure.parts.forEach((name, part) => {
    const item = add(legend, "li");
    add(item, "i", `c${part % 8}`);
    item.append(name);
  });
}

function describeBar(figure, row, total) {
  const share = (value) => (figure.parts.length > 1 ? ` (${Math.round((100 * value) / (total || 1))} %)` : "");
  const lines = figure.parts.map((name, part) => `${number(row.values[part])} ${figure.unit}${share(row.values[part])}  ${name}`);
  return [row.name, ...(figure.parts.length > 1 ? [`${number(total)} ${figure.unit}  in all`] : []), ...lines];
}
