"use strict";
// Draws the figures of #figures into their .plot elements, again whenever their width or the colour scheme changes.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const tip = document.getElementById("tip");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

  // ---- elements and numbers

  function make(parent, name, attributes, text) {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) one.setAttribute(key, attributes[key]);
    if (text !== undefined) one.textContent = text;
    return parent.appendChild(one);
  }

  function add(parent, name, className, text) {
    const one = document.createElement(name);
    if (className) one.className = className;
    if (text !== undefined) one.append(text);
    return parent.appendChild(one);
  }

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
    return `${Number(count.toFixed(count % 1 ? 2 : 0))} ${units[unit]}`;
  }

  function number(value) {
    const short = Number(value.toPrecision(3));
    return value >= 1000 ? Math.round(value).toString() : value < 0.001 ? short.toExponential() : short.toString();
  }

  // The end of a name tells hosts apart; a letter takes 7.5 pixels.
  function fit(text, room) {
    const most = Math.max(2, Math.floor(room / 7.5));
    return text.length > most ? `…${text.slice(1 - most)}` : text;
  }

  function show(lines, event) {
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const top = Math.min(event.clientY + 14, innerHeight - box.height - 4);
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }

  function hide() { tip.hidden = true; }

  function listen(element, found) {
    const look = (event) => { const lines = found(event); if (lines) show(lines, event); else hide(); };
    element.addEventListener("pointermove", look);
    element.addEventListener("pointerdown", look);
    element.addEventListener("pointerleave", () => { found(null); hide(); });
  }

  // ---- curves: values over size, both axes logarithmic

  function ticks(least, most) {
    const found = [];
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
      for (const digit of most / least > 1000 ? [1] : [1, 2, 5]) {
        const value = digit * 10 ** power;
        if (value >= least * 0.999 && value <= most * 1.001) found.push(value);
      }
    }
    return found;
  }

  function drawCurves(plot, figure) {
    const width = plot.clientWidth, height = Math.round(Math.max(230, Math.min(380, width * 0.6)));
    const area = { left: 62, right: width - 12, top: 10, bottom: height - 44 };
    const points = figure.series.flatMap((series) => series.points);
    const sizes = [...new Set(points.map((point) => point[0]))].sort((one, other) => one - other);
    const values = points.map((point) => point[1]);
    const least = Math.min(...values) / 1.15, most = Math.max(...values) * 1.15;
    const share = (value, from, to) => Math.log(value / from) / Math.log(to / from);
    const last = sizes[sizes.length - 1];
    const x = (size) => area.left + (area.right - area.left) * (sizes.length > 1 ? share(size, sizes[0], last) : 0.5);
    const y = (value) => area.bottom - (area.bottom - area.top) * share(value, least, most);

    const svg = make(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": figure.title });
    for (const value of ticks(least, most)) {
      make(svg, "line", { class: "grid", x1: area.left, x2: area.right, y1: y(value), y2: y(value) });
      make(svg, "text", { x: area.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value));
    }
    let free = -Infinity;
    for (const size of sizes) {
      make(svg, "line", { class: "grid", x1: x(size), x2: x(size), y1: area.top, y2: area.bottom });
      if (x(size) - 30 < free || (x(size) + 60 > x(last) && size !== last)) continue;
      make(svg, "text", { x: Math.min(x(size), width - 26), y: area.bottom + 17, "text-anchor": "middle" }, bytes(size));
      free = x(size) + 32;
    }
    make(svg, "path", { class: "axis", d: `M${area.left} ${area.top}V${area.bottom}H${area.right}` });
    const middle = (area.top + area.bottom) / 2;
    make(svg, "text", { class: "title", x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, "size (bytes)");
    make(svg, "text", { class: "title", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" }, figure.label);
    for (const series of figure.series) {
      const look = { class: `s${series.colour % 8}`, "stroke-dasharray": DASHES[Math.floor(series.colour / 8) % 4] };
      const path = series.points.map(([size, value], at) => `${at ? "L" : "M"}${x(size)} ${y(value)}`).join("");
      make(svg, "path", { ...look, class: `curve ${look.class}`, d: path });
      for (const [size, value] of series.points) make(svg, "circle", { class: `dot ${look.class}`, cx: x(size), cy: y(value), r: 2.6 });
    }
    const cursor = make(svg, "line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
    listen(svg, (event) => {
      cursor.setAttribute("visibility", event ? "visible" : "hidden");
      if (!event) return null;
      const at = event.clientX - svg.getBoundingClientRect().left;
      const size = sizes.reduce((best, one) => (Math.abs(x(one) - at) < Math.abs(x(best) - at) ? one : best));
      cursor.setAttribute("x1", x(size));
      cursor.setAttribute("x2", x(size));
      const here = figure.series.flatMap((series) => series.points.filter((one) => one[0] === size).map((one) => [series.name, one[1]]));
      here.sort((one, other) => (figure.unit === "us" ? one[1] - other[1] : other[1] - one[1]));
      return [bytes(size), ...here.map(([name, value]) => `${number(value)} ${figure.unit}  ${name}`)];
    });
    const legend = add(plot, "ul", "legend");
    for (const series of figure.series) {
      const item = add(legend, "li");
      const swatch = make(item, "svg", { viewBox: "0 0 28 10" });
      const dash = DASHES[Math.floor(series.colour / 8) % 4];
      make(swatch, "path", { class: `curve s${series.colour % 8}`, d: "M0 5H28", "stroke-dasharray": dash });
      item.append(series.name);
    }
  }

  // ---- heat maps: rank by rank, coloured by how slow a pair is among its like

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

  // ---- the page

  function draw(plot) {
    const figure = figures[plot.dataset.figure];
    if (!plot.clientWidth) return;
    plot.replaceChildren();
    (figure.kind === "heat" ? drawHeat : drawCurves)(plot, figure);
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
})();
