// Heat maps: rank by rank, coloured by how slow a pair is among its like.

function colour(times) {
  const share = Math.max(-1, Math.min(1, Math.log(times) / Math.log(4)));
  const middle = dark.matches ? [52, 62, 72] : [221, 228, 234];
  const end = share > 0 ? (dark.matches ? [255, 96, 66] : [200, 30, 20]) : dark.matches ? [80, 190, 255] : [20, 100, 190];
  return middle.map((one, at) => Math.round(one + (end[at] - one) * Math.abs(share)));
}

const css = (rgb) => `rgb(${rgb.join(",")})`;

// Black or white, whichever has more contrast by WCAG's luminance.
function ink(rgb) {
  const [red, green, blue] = rgb.map((one) => (one / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

function hostSpans(figure) {
  const spans = [];
  for (let block = 0; block < figure.side; block += 1) {
    const host = figure.hosts[block * figure.block], last = spans[spans.length - 1];
    if (last && last.host === host) last.to = block + 1;
    else spans.push({ host, from: block, to: block + 1 });
  }
  return spans;
}

function drawHeat(plot, figure) {
  const longest = Math.max(...figure.labels.map((label) => label.length));
  const width = plot.clientWidth, left = Math.min(width * 0.3, 58 + 7.5 * longest), top = 46;
  const room = Math.min(width - left - 8, 860, Math.max(150, figure.side * 64)), cell = room / figure.side;
  const height = top + room + 8, scale = devicePixelRatio || 1;
  const canvas = add(plot, "canvas");
  Object.assign(canvas, { width: Math.round(room * scale), height: Math.round(room * scale) });
  Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${room}px`, height: `${room}px` });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const least = Math.max(cell, 1 / scale), gap = cell > 12 ? 1 : 0;
  for (const [row, column, , , , times] of figure.cells) {
    pen.fillStyle = css(colour(times));
    pen.fillRect(column * cell, row * cell, least - gap, least - gap);
  }
  const svg = make(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": figure.title });
  svg.style.position = "relative";
  const inside = make(svg, "g", { transform: `translate(${left} ${top})` });
  labels(svg, inside, figure, { left, top, room, cell });
  if (cell >= 38) {
    for (const [row, column, , , value, times] of figure.cells) {
      const at = { class: "figure", x: (column + 0.5) * cell, y: (row + 0.5) * cell + 4, "text-anchor": "middle" };
      make(inside, "text", at, number(value)).style.fill = ink(colour(times));
    }
  }
  make(inside, "path", { class: "slow", d: outline(figure, cell), "stroke-width": Math.min(2.5, Math.max(1, cell / 3)) });
  const found = new Map(figure.cells.map((one) => [one[0] * figure.side + one[1], one]));
  listen(svg, (event) => {
    if (!event) return null;
    const box = svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / cell), row = Math.floor((event.clientY - box.top - top) / cell);
    const one = column >= 0 && column < figure.side ? found.get(row * figure.side + column) : null;
    return one ? describe(figure, one) : null;
  });
  heatLegend(plot, figure);
}

// Around all slow cells that touch, so that a slow host is one frame.
function outline(figure, cell) {
  const slow = new Set(figure.cells.filter((one) => one[6]).map(([row, column]) => `${row} ${column}`));
  const sides = [[-1, 0, `h${cell}`], [0, -1, `v${cell}`], [1, 0, `m0 ${cell}h${cell}`], [0, 1, `m${cell} 0v${cell}`]];
  let path = "";
  for (const [row, column] of [...slow].map((key) => key.split(" ").map(Number))) {
    for (const [down, right, line] of sides) {
      if (!slow.has(`${row + down} ${column + right}`)) path += `M${column * cell} ${row * cell}${line}`;
    }
  }
  return path;
}

function labels(svg, inside, figure, { left, top, room, cell }) {
  make(svg, "text", { class: "title", x: left + room / 2, y: 12, "text-anchor": "middle" }, "to rank");
  make(svg, "text", { class: "title", transform: `translate(12 ${top + room / 2}) rotate(-90)`, "text-anchor": "middle" }, "from rank");
  const spans = hostSpans(figure), named = spans.length > 1 && spans.length < figure.side;
  for (const { from } of room / spans.length > 14 ? spans.slice(1) : []) {
    make(inside, "path", { class: "host-line", d: `M${from * cell} 0V${room}M0 ${from * cell}H${room}` });
  }
  const rank = (block) => String(block * figure.block), host = (block) => figure.labels[figure.hosts[block * figure.block]];
  const rows = named ? spans : [...Array(figure.side).keys()].map((block) => ({ from: block, to: block + 1 }));
  let free = -Infinity, freeAcross = -Infinity;
  for (const { from, to } of rows) {
    const middle = ((from + to) / 2) * cell, name = spans.length > 1 ? host(from) : "";
    if (middle - 7 >= free) {
      const text = named ? name : `${name} ${rank(from)}`;
      make(inside, "text", { x: -5, y: middle + 4, "text-anchor": "end" }, fit(text, left - 26));
      free = middle + 7;
    }
    const short = fit(name, Math.max(60, (to - from) * cell)), half = short.length * 3.75;
    if (named && middle - half >= freeAcross && middle + half < room + 8) {
      make(inside, "text", { x: middle, y: -20, "text-anchor": "middle" }, short);
      freeAcross = middle + half + 8;
    }
  }
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(34 / cell)));
  for (let block = 0; block < figure.side; block += step) {
    make(inside, "text", { x: (block + 0.5) * cell, y: -6, "text-anchor": "middle" }, rank(block));
  }
}

function describe(figure, [, , source, dest, value, times, slow]) {
  const name = (rank) => `rank ${rank} (${figure.hostnames[figure.hosts[rank]]})`;
  const kind = figure.hosts[source] === figure.hosts[dest] ? "inside hosts" : "between hosts";
  const lines = [`${name(source)} to ${name(dest)}`, `${number(value)} ${figure.unit}`, `${number(times)} times as slow as the median ${kind}`];
  if (figure.block > 1) lines.unshift(`the slowest of ${figure.block} x ${figure.block} ranks:`);
  return slow ? [...lines, "SLOW by the rule below"] : lines;
}

function heatLegend(plot, figure) {
  const legend = add(plot, "ul", "legend");
  const cells = figure.block > 1 ? `a cell is the slowest of ${figure.block} x ${figure.block} ranks` : "a cell is a pair";
  add(legend, "li", "", `${cells}, in ${figure.unit}; colours: times as slow as the median of its kind`);
  for (const [times, text] of [[0.25, "1/4 or less"], [0.5, "1/2"], [1, "1"], [2, "2"], [4, "4 or more"]]) {
    const item = add(legend, "li");
    add(item, "i").style.background = css(colour(times));
    item.append(text);
  }
  const item = add(legend, "li");
  add(item, "i", "frame");
  item.append("slow by the rule below");
}
