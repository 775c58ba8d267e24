"use strict";

/* The charts of the explorer: each draws a part of the data of one target into its svg. */
const ExplorerCharts = (() => {
  const { byId } = Tools;
  const { element, short, extent, frame, line } = Charts;
  const MOST_BARS = 40; // coefficients with an interval in one chart
  const NAMED = 12; // curves that are named
  const cut = (name, most = 22) => (name.length <= most ? name : `${name.slice(0, most / 2 - 1)}…${name.slice(-most / 2)}`);
  const room = (names) => Math.min(190, 24 + 7 * Math.max(4, ...names.map((name) => cut(name).length)));
  const rule = (svg, chart, from, to, look = "zero") =>
    element(svg, "line", { x1: chart.toX(from[0]), x2: chart.toX(to[0]), y1: chart.toY(from[1]), y2: chart.toY(to[1]), class: look });

  /* Medians and intervals of the columns that any of the views keeps, the largest first; views lie below each other. */
  const forest = (id, { names, units }, views, percent) => {
    const size = (j) => Math.max(...views.map((view) => Math.abs(view.median[j] ?? 0))) / units[j];
    const picked = names.map((_, j) => j).filter((j) => views.some((view) => view.selected[j]));
    const few = picked.sort((i, j) => size(j) - size(i)).slice(0, MOST_BARS);
    const scaled = (values) => few.map((j) => (values[j] === null ? null : values[j] / units[j]));
    const all = views.map((view) => ({ low: scaled(view.lower), mid: scaled(view.median), high: scaled(view.upper), view }));
    const svg = byId(id), left = room(few.map((j) => names[j])), step = 14 + 8 * views.length;
    const chart = frame(svg, {
      x: extent([0, ...all.flatMap(({ low, mid, high }) => [...low, ...mid, ...high])]), y: [few.length - 0.5, -0.5], height: step * few.length + 60, left, yTicks: [],
      xLabel: "standardised coefficient",
      label: `${picked.length} of ${names.length} columns. ` + few.slice(0, NAMED).map((j, k) => `${names[j]}: ${all.map(({ mid }) => short(mid[k], 3)).join(" and ")}`).join("; "),
    });
    rule(svg, chart, [0, -0.5], [0, few.length - 0.5]);
    few.forEach((j, k) => {
      element(svg, "text", { x: left - 8, y: chart.toY(k) + 4, "text-anchor": "end" }, cut(names[j]));
      all.forEach(({ low, mid, high, view }, v) => {
        const y = chart.toY(k) + 8 * (v - (views.length - 1) / 2), quiet = view.kept && !view.kept[j] ? " quiet" : "";
        if (low[k] !== null) element(svg, "line", { x1: chart.toX(low[k]), x2: chart.toX(high[k]), y1: y, y2: y, class: `bar view${v}${quiet}` });
        if (mid[k] !== null && view.selected[j]) element(svg, "circle", { cx: chart.toX(mid[k]), cy: y, r: 4, class: `dot view${v}${quiet}` });
      });
    });
    const more = picked.length - few.length;
    byId(`${id}-note`).textContent = picked.length
      ? `Medians with ${percent} % intervals, standardised${more ? `; the largest ${MOST_BARS} of ${picked.length}` : ""}${views.some((view) => view.kept) ? ". Grey: not in the sparse point" : ""}.`
      : "No column is selected here.";
  };

  /* The curves of the path; gives a function that moves the cursor without drawing them again. */
  const path = ({ columns, units, path, sparse }) => {
    const svg = byId("path");
    const scaled = path.coef.map((values, j) => values.map((b) => b / units[j]));
    const gamma = path.gamma, ends = gamma.length > 1 ? [gamma[0], gamma.at(-1)] : [gamma[0] / 2, gamma[0] * 2];
    const chart = frame(svg, {
      x: ends, y: extent(scaled.flat()), height: 320, logX: true, right: 108,
      xLabel: "confidence γ in the coefficients", yLabel: "standardised coefficient",
      label: `Path of ${columns.length} coefficients over ${gamma.length} confidences from ${short(gamma[0])} to ${short(gamma.at(-1))}.`,
    });
    const curve = (j) => line(gamma.map((g, k) => [chart.toX(g), chart.toY(scaled[j][k])]));
    const [kept, rest] = [true, false].map((wanted) => columns.map((_, j) => j).filter((j) => sparse.selected[j] === wanted));
    if (rest.length) element(svg, "path", { d: rest.map(curve).join(""), class: "faint" });
    for (const j of kept) element(svg, "path", { d: curve(j), class: "curve" });
    nameCurves(svg, chart, kept, scaled, columns);
    const mark = element(svg, "line", { y1: chart.top, y2: chart.height - chart.bottom, class: "cursor" });
    return (setting) => {
      const at = setting.mode === "path" ? gamma[setting.at] : Math.min(Math.max(sparse.gamma, ends[0]), ends[1]);
      for (const end of ["x1", "x2"]) mark.setAttribute(end, chart.toX(at));
      mark.style.display = ["path", "sparse"].includes(setting.mode) ? "" : "none";
    };
  };

  /* Names at the right end of the curves, moved apart. */
  const nameCurves = (svg, chart, kept, scaled, columns) => {
    const size = (j) => Math.max(...scaled[j].map(Math.abs));
    const named = [...kept].sort((i, j) => size(j) - size(i)).slice(0, NAMED);
    const last = (j) => { const k = scaled[j].findLastIndex((b) => b !== 0); return scaled[j][k < 0 ? 0 : k]; };
    named.sort((i, j) => last(j) - last(i));
    let free = chart.top;
    for (const j of named) {
      free = Math.max(chart.toY(last(j)) + 4, free + 12);
      element(svg, "text", { x: chart.width - chart.right + 6, y: Math.min(free, chart.height - 8) }, cut(columns[j], 16));
    }
  };

  const errors = (dial, shown) => {
    const svg = byId("errors"), count = dial.error.length;
    const chart = frame(svg, {
      x: [-0.5, count - 0.5], y: extent([...dial.error, dial.mixture_error], 0.12), height: 320, bottom: 104, left: 58, right: 62, xTicks: [],
      yLabel: `held-out ${dial.error_name}`,
      label: `Held-out ${dial.error_name}: ` + dial.label.map((name, k) => `${name} ${short(dial.error[k])}`).join("; ") + `; mixture ${short(dial.mixture_error)}.`,
    });
    rule(svg, chart, [-0.5, dial.mixture_error], [count - 0.5, dial.mixture_error], "cursor");
    element(svg, "text", { x: chart.width - chart.right + 6, y: chart.toY(dial.mixture_error) + 4 }, "mixture");
    for (let k = 0; k < count; k++) {
      const x = chart.toX(k), look = k === shown ? "now" : dial.estimate[k] ? "dot" : "out";
      if (dial.error[k] !== null) element(svg, "circle", { cx: x, cy: chart.toY(dial.error[k]), r: k === shown ? 7 : 4 + 4 * Math.sqrt(dial.weight[k] ?? 0), class: look });
      const at = chart.height - chart.bottom + 14;
      element(svg, "text", { x: x + 4, y: at, "text-anchor": "end", transform: `rotate(-40 ${x + 4} ${at})`, class: "soft" }, dial.label[k]);
    }
  };

  /* Inclusion probabilities, the largest first. */
  const inclusion = ({ names, inclusion }) => {
    const svg = byId("inclusion");
    const few = names.map((_, j) => j).sort((i, j) => inclusion[j] - inclusion[i]).slice(0, MOST_BARS / 2);
    const left = room(few.map((j) => names[j]));
    const chart = frame(svg, {
      x: [0, 1.02], y: [few.length - 0.5, -0.5], height: 20 * few.length + 60, left, yTicks: [], xTicks: [0, 0.25, 0.5, 0.75, 1], xLabel: "inclusion probability",
      label: "Inclusion probabilities: " + few.slice(0, NAMED).map((j) => `${names[j]} ${short(inclusion[j], 2)}`).join("; "),
    });
    few.forEach((j, k) => {
      element(svg, "text", { x: left - 8, y: chart.toY(k) + 4, "text-anchor": "end" }, cut(names[j]));
      element(svg, "rect", { x: chart.toX(0), width: chart.toX(inclusion[j]) - chart.toX(0), y: chart.toY(k) - 6, height: 12, class: "dot" });
    });
    byId("inclusion-note").textContent = `Probability that a column carries an effect, of the posterior over supports${names.length > few.length ? `; the largest ${few.length} of ${names.length}` : ""}.`;
  };

  const held = (held) => {
    const svg = byId("held"), classes = held.classes.length > 0;
    const both = extent([...held.y, ...held.mean]);
    const chart = frame(svg, {
      x: classes ? [0, 1] : both, y: classes ? [-0.5, 1.5] : both, height: 320, left: classes ? room(held.classes) : undefined,
      yTicks: classes ? [0, 1] : undefined, yNames: classes ? held.classes.map((name) => cut(name)) : undefined,
      xLabel: classes ? `predicted probability of ${cut(held.classes[1])}, out of fold` : "predicted, out of fold", yLabel: "truth",
      label: classes ? `Out-of-fold probability of ${held.classes[1]} for ${held.rows} rows, by their true class.` : `Truth against out-of-fold prediction of ${held.rows} rows.`,
    });
    if (!classes) rule(svg, chart, [both[0], both[0]], [both[1], both[1]]);
    held.y.forEach((y, i) => {
      const off = classes ? 0.7 * (((i * 0.618034) % 1) - 0.5) : 0; // rows of a class are moved apart
      element(svg, "circle", { cx: chart.toX(held.mean[i]).toFixed(1), cy: chart.toY(y + off).toFixed(1), r: 3, class: "point" });
    });
  };

  const calibration = ({ calibration, classes }) => {
    const svg = byId("calibration"), { expected, observed, lower, upper } = calibration, some = classes.length > 0;
    const chart = frame(svg, {
      x: [0, 1], y: [0, 1], height: 320,
      xLabel: some ? `predicted probability of ${cut(classes[1])}` : "probability of the interval", yLabel: some ? "how often it was so" : "share of rows inside",
      label: "Calibration: " + expected.map((e, k) => `${short(e, 2)} expected, ${short(observed[k], 2)} observed`).join("; "),
    });
    rule(svg, chart, [0, 0], [1, 1]);
    if (lower) lower.forEach((low, k) => rule(svg, chart, [expected[k], low], [expected[k], upper[k]], "bar"));
    element(svg, "path", { d: line(expected.map((e, k) => [chart.toX(e), chart.toY(observed[k])])), class: "curve" });
    expected.forEach((e, k) => element(svg, "circle", { cx: chart.toX(e), cy: chart.toY(observed[k]), r: 3.5, class: "dot" }));
  };

  return { forest, path, errors, inclusion, held, calibration };
})();
