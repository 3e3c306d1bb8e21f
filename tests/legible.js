// Tells what cannot be read on a page: text that is small, pale, cut off, or over other text. Give its value as a list.
(() => {
  const LEAST_PIXELS = 11, LEAST_CONTRAST = 4.5; // the latter is WCAG 2's AA
  const found = [];

  function luminance(rgb) {
    const [red, green, blue] = rgb.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function contrast(one, other) {
    const [less, more] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (more + 0.05) / (less + 0.05);
  }

  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);

  // The canvas beneath a heat map's figures, else the nearest background that is not transparent.
  function behind(element) {
    const canvas = element.classList.contains("figure") && element.closest(".plot").querySelector("canvas");
    if (canvas) {
      const box = canvas.getBoundingClientRect(), of = element.getBoundingClientRect(), scale = canvas.width / box.width;
      const copy = new OffscreenCanvas(1, 1).getContext("2d");
      copy.drawImage(canvas, (box.left - of.left) * scale, (box.top - of.top) * scale);
      return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour[3] !== 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  }

  const hasText = (one) => [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const one of document.querySelectorAll("body :not(script)")) {
    if (!hasText(one) || !one.checkVisibility()) continue;
    const style = getComputedStyle(one), box = one.getBoundingClientRect(), what = `${one.tagName} '${one.textContent.slice(0, 30)}'`;
    const ink = numbers(one instanceof SVGElement ? style.fill : style.color), ratio = contrast(ink.slice(0, 3), behind(one));
    if (parseFloat(style.fontSize) < LEAST_PIXELS) found.push(`${what} is ${style.fontSize}`);
    if (ratio < LEAST_CONTRAST) found.push(`${what} has a contrast of ${ratio.toFixed(2)}`);
    if (!one.closest(".scroll") && (box.left < 0 || box.right > innerWidth)) found.push(`${what} leaves the window`);
  }
  for (const svg of document.querySelectorAll(".plot svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((one) => ({ text: one.textContent, box: one.getBoundingClientRect() }));
    texts.forEach(({ text, box }, place) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        found.push(`${svg.ariaLabel}: '${text}' is cut off`);
      }
      for (const { text: other, box: its } of texts.slice(0, place)) {
        const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (across > 0 && down > 3) found.push(`${svg.ariaLabel}: '${text}' is over '${other}'`); // boxes hold space above letters
      }
    });
  }
  return found;
})();
