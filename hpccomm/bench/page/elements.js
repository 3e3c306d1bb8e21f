// What all figures are made with: elements, numbers, and the tip at the pointer.

const tip = document.getElementById("tip");
const dark = matchMedia("(prefers-color-scheme: dark)");

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
  const size = Math.abs(value), short = Number(value.toPrecision(3));
  return size >= 1000 ? Math.round(value).toString() : size < 0.001 && size > 0 ? short.toExponential() : short.toString();
}

// About so many round values from the least to the most, at equal distances.
function even(least, most, about) {
  const rough = (most - least) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(least / step - 1e-9); at * step <= most + step * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
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
