// Curves: values over size, on a logarithmic axis, or over what is counted, on a linear one.

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

function powers(least, most) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
    for (const digit of most / least > 1000 ? [1] : [1, 2, 5]) {
      const value = digit * 10 ** power;
      if (value >= least * 0.999 && value <= most * 1.001) found.push(value);
    }
  }
  return found.length > 1 ? found : even(least, most, 4);
}

// The values' axis: its ends, its ticks, and the share of the way from one end to the other at which a value is.
function upAxis(values, logarithmic) {
  if (logarithmic) {
    const least = Math.min(...values) / 1.15, most = Math.max(...values) * 1.15;
    return { ticks: powers(least, most), share: (value) => Math.log(value / least) / Math.log(most / least) };
  }
  const low = Math.min(0, ...values), high = Math.max(0, ...values), room = (high - low || 1) * 0.05;
  const least = low && low - room, most = high + room;
  return { ticks: even(least, most, 5), share: (value) => (value - least) / (most - least) };
}

// The axis below. Sizes have a tick each where there is room; what is counted has round ones.
function acrossAxis(places, across, width) {
  const first = places[0], last = places[places.length - 1];
  if (across.unit === "bytes") {
    const share = (size) => (places.length > 1 ? Math.log(size / first) / Math.log(last / first) : 0.5);
    return { share, ticks: places, text: bytes, word: bytes };
  }
  const ticks = even(first, Math.max(last, first + 1), width / 80).filter((one) => Number.isInteger(one) && one <= last);
  const word = (place) => across.names[places.indexOf(place)] || `${across.unit} ${place}`;
  return { share: (place) => (places.length > 1 ? (place - first) / (last - first) : 0.5), ticks, text: number, word };
}

function drawCurves(plot, figure) {
  const width = plot.clientWidth, height = Math.round(Math.max(230, Math.min(380, width * 0.6)));
  const points = figure.series.flatMap((series) => series.points);
  const up = upAxis(points.map((point) => point[1]), figure.logarithmic);
  const longest = Math.max(...up.ticks.map((value) => number(value).length));
  const area = { left: Math.max(62, 28 + 8 * longest), right: width - 12, top: 10, bottom: height - 44 };
  const places = [...new Set(points.map((point) => point[0]))].sort((one, other) => one - other);
  const across = acrossAxis(places, figure.across, area.right - area.left);
  const x = (place) => area.left + (area.right - area.left) * across.share(place);
  const y = (value) => area.bottom - (area.bottom - area.top) * up.share(value);

  const svg = make(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": figure.title });
  drawAxes(svg, figure, { area, across, up, x, y, width, height });
  for (const series of figure.series) {
    const look = { class: `s${series.colour % 8}`, "stroke-dasharray": DASHES[Math.floor(series.colour / 8) % 4] };
    const path = series.points.map(([place, value], at) => `${at ? "L" : "M"}${x(place)} ${y(value)}`).join("");
    if (figure.across.joined) make(svg, "path", { ...look, class: `curve ${look.class}`, d: path });
    const crowded = figure.across.joined && series.points.length * 8 > area.right - area.left;
    for (const [place, value] of crowded ? [] : series.points) {
      make(svg, "circle", { class: `dot ${look.class}`, cx: x(place), cy: y(value), r: 2.6 });
    }
  }
  const cursor = make(svg, "line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
  listen(svg, (event) => {
    cursor.setAttribute("visibility", event ? "visible" : "hidden");
    if (!event) return null;
    const at = event.clientX - svg.getBoundingClientRect().left;
    const place = places.reduce((best, one) => (Math.abs(x(one) - at) < Math.abs(x(best) - at) ? one : best));
    cursor.setAttribute("x1", x(place));
    cursor.setAttribute("x2", x(place));
    return [across.word(place), ...valuesAt(figure, place).map(([name, value]) => `${number(value)} ${figure.unit}  ${name}`)];
  });
  const legend = add(plot, "ul", "legend");
  for (const series of figure.series) {
    const item = add(legend, "li");
    const swatch = make(item, "svg", { viewBox: "0 0 28 10" });
    const dash = DASHES[Math.floor(series.colour / 8) % 4];
    if (figure.across.joined) make(swatch, "path", { class: `curve s${series.colour % 8}`, d: "M0 5H28", "stroke-dasharray": dash });
    else make(swatch, "circle", { class: `dot s${series.colour % 8}`, cx: 14, cy: 5, r: 3.5 });
    item.append(series.name);
  }
}

// Each curve's value there, the best first. Of what is counted, curves may have their points at other places.
function valuesAt(figure, place) {
  const here = figure.series.flatMap((series) => {
    const nearest = series.points.reduce((best, one) => (Math.abs(one[0] - place) < Math.abs(best[0] - place) ? one : best));
    const between = figure.across.unit !== "bytes" && series.points.length > 1 ? series.points[1][0] - series.points[0][0] : 0;
    return Math.abs(nearest[0] - place) <= between ? [[series.name, nearest[1]]] : [];
  });
  return here.sort((one, other) => (["us", "s"].includes(figure.unit) ? one[1] - other[1] : other[1] - one[1]));
}

function drawAxes(svg, figure, { area, across, up, x, y, width, height }) {
  for (const value of up.ticks) {
    make(svg, "line", { class: value ? "grid" : "axis", x1: area.left, x2: area.right, y1: y(value), y2: y(value) });
    make(svg, "text", { x: area.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value));
  }
  let free = -Infinity;
  const last = across.ticks[across.ticks.length - 1];
  for (const place of across.ticks) {
    make(svg, "line", { class: "grid", x1: x(place), x2: x(place), y1: area.top, y2: area.bottom });
    if (x(place) - 30 < free || (x(place) + 60 > x(last) && place !== last)) continue;
    const text = across.text(place), middle = Math.min(x(place), width - 2 - 4 * text.length);
    make(svg, "text", { x: middle, y: area.bottom + 17, "text-anchor": "middle" }, text);
    free = x(place) + 32;
  }
  make(svg, "path", { class: "axis", d: `M${area.left} ${area.top}V${area.bottom}H${area.right}` });
  const middle = (area.top + area.bottom) / 2;
  make(svg, "text", { class: "title", x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, figure.across.label);
  make(svg, "text", { class: "title", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" }, figure.label);
}
