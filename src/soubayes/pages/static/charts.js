"use strict";

/* A few SVG helpers: elements, scales, ticks and a frame with axes. */
const Charts = (() => {
  const element = (svg, name, attributes = {}, text) => {
    const node = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    svg.append(node);
    return node;
  };

  const linear = (from, to) => {
    const slope = (to[1] - to[0]) / (from[1] - from[0] || 1);
    return (x) => to[0] + (x - from[0]) * slope;
  };

  const log = (from, to) => {
    const inner = linear(from.map(Math.log), to);
    return (x) => inner(Math.log(x));
  };

  /* About `count` round numbers between two ends. */
  const ticks = (low, high, count = 5) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return found;
  };

  /* Confidences are shown on a logarithmic axis: round numbers that lie on it. */
  const logTicks = (low, high) =>
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 8, 12, 20, 30, 50, 100].filter(
      (t) => t >= low * 0.999 && t <= high * 1.001,
    );

  /* At most `digits` significant digits, without an exponent where it can be avoided. */
  const short = (x, digits = 4) => {
    if (x === null || x === undefined) return "–";
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size >= 1e7 || size < 1e-4) return x.toExponential(digits - 1).replace("-", "−").replace("e−", "e-");
    return String(Number(x.toPrecision(digits))).replace("-", "−");
  };

  const extent = (values, pad = 0.06) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) {
      if (v === null || !Number.isFinite(v)) continue;
      if (v < low) low = v;
      if (v > high) high = v;
    }
    if (low > high) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * pad;
    return [low - room, high + room];
  };

  /* As few digits as tell all ticks apart. */
  const tickLabels = (values) => {
    for (let digits = 3; ; digits++) {
      const labels = values.map((t) => short(t, digits));
      if (digits >= 9 || new Set(labels).size === labels.length) return labels;
    }
  };

  /* Clear an svg, give it its width on the screen, and draw axes with ticks and labels. */
  const frame = (svg, { x, y, height = 280, left = 52, bottom = 44, top = 10, right = 12, xTicks, yTicks, yNames, xLabel, yLabel, logX = false, label }) => {
    const width = Math.max(svg.parentElement.clientWidth, 200);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    if (label) svg.setAttribute("aria-label", label);
    const toX = (logX ? log : linear)(x, [left, width - right]);
    const toY = linear(y, [height - bottom, top]);
    const few = Math.max(2, Math.floor((width - left - right) / 70));
    const yAt = yTicks ?? ticks(...y, 5), xAt = xTicks ?? (logX ? logTicks(...x) : ticks(...x, Math.min(few, 8)));
    const yLabels = yNames ?? tickLabels(yAt), xLabels = tickLabels(xAt);
    for (const [k, t] of yAt.entries()) {
      element(svg, "line", { x1: left, x2: width - right, y1: toY(t), y2: toY(t), class: "grid" });
      element(svg, "text", { x: left - 6, y: toY(t) + 4, "text-anchor": "end", class: "soft" }, yLabels[k]);
    }
    for (const [k, t] of xAt.entries()) {
      element(svg, "line", { x1: toX(t), x2: toX(t), y1: height - bottom, y2: height - bottom + 5, class: "axis" });
      element(svg, "text", { x: toX(t), y: height - bottom + 18, "text-anchor": "middle", class: "soft" }, xLabels[k]);
    }
    element(svg, "line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
    if (xLabel) element(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel);
    if (yLabel)
      element(svg, "text", { x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, yLabel);
    return { toX, toY, width, height, left, right, top, bottom };
  };

  const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  return { element, linear, log, ticks, short, extent, frame, line };
})();
