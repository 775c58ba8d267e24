"use strict";

(() => {
  const { byId, copy } = Tools;
  const data = JSON.parse(byId("data").textContent);
  const { element, short, extent, frame, line } = Charts;
  const MOST_ROWS = 100; // of the table, before a button asks for all
  const MOST_BARS = 40; // coefficients with an interval in the first chart
  const NAMED = 12; // curves that are named
  const percent = Math.round(100 * data.level);
  const cut = (name, most = 22) => (name.length <= most ? name : `${name.slice(0, most / 2 - 1)}…${name.slice(-most / 2)}`);

  const state = { target: 0, mode: "reported", point: 0, candidate: 0, sort: "size", down: true, all: false };
  const here = () => data.targets[state.target];

  /* What is shown now: estimate, lower, upper and selected of every column of the page. */
  const view = () => {
    const { columns, reported, path, dial } = here();
    if (state.mode === "reported") return reported;
    const ends = (estimate, half) => ({
      estimate,
      lower: estimate.map((b, j) => (half[j] === null ? null : b - half[j])),
      upper: estimate.map((b, j) => (half[j] === null ? null : b + half[j])),
    });
    if (state.mode === "path") {
      const at = (lists) => lists.map((values) => values[state.point]);
      return { ...ends(at(path.coef), at(path.half)), selected: at(path.selected).map(Boolean), code: path.code[state.point] };
    }
    const estimate = dial.estimate[state.candidate], code = dial.code[state.candidate];
    const none = columns.map(() => null);
    if (!estimate) return { estimate: none, lower: none, upper: none, selected: columns.map(() => false), code };
    return { ...ends(estimate, dial.half[state.candidate]), selected: estimate.map((b) => b !== 0), code };
  };

  const sentence = () => {
    const { path, dial, reported, total } = here();
    if (state.mode === "path") {
      const noise = path.noise ? `, noise sd ${short(path.noise[state.point])}` : "";
      return `Confidence ${short(path.gamma[state.point])}: ${path.count[state.point]} of ${total} columns selected, intercept ${short(path.intercept[state.point])}${noise}.`;
    }
    if (state.mode === "reported")
      return `Reported fit, chosen at confidence ${short(reported.gamma)}: ${reported.selected.filter(Boolean).length} of ${total} columns selected.`;
    const c = state.candidate;
    if (c === dial.error.length) return `Mixture of all candidates: ${dial.error_name} ${short(dial.mixture_error)} on held-out rows.`;
    if (!dial.estimate[c]) return `${dial.label[c]}: left behind on held-out rows (${dial.error_name} ${short(dial.error[c])}), so it was not fitted to all rows.`;
    return `${dial.label[c]}: weight ${short(dial.weight[c], 2)}, ${dial.error_name} ${short(dial.error[c])}, about ${short(dial.columns[c], 3)} of ${total} columns.`;
  };

  /* ---- charts ------------------------------------------------------------------------------ */

  const forest = (shown) => {
    const { columns, units, total } = here();
    const size = (j) => Math.abs(shown.estimate[j] ?? 0) / units[j];
    const picked = columns.map((_, j) => j).filter((j) => shown.selected[j]).sort((i, j) => size(j) - size(i));
    const few = picked.slice(0, MOST_BARS);
    const more = picked.length - few.length;
    byId("forest-note").textContent = picked.length
      ? `Standardised, with ${percent} % intervals${more ? `; the largest ${MOST_BARS} of ${picked.length}` : ""}.`
      : "No column is selected here.";
    const svg = byId("forest");
    const scaled = (values) => few.map((j) => (values[j] === null ? null : values[j] / units[j]));
    const [low, mid, high] = [shown.lower, shown.estimate, shown.upper].map(scaled);
    const left = Math.min(190, 24 + 7 * Math.max(4, ...few.map((j) => cut(columns[j]).length)));
    const chart = frame(svg, {
      x: extent([0, ...low, ...mid, ...high]), y: [few.length - 0.5, -0.5], height: 22 * few.length + 60, left, yTicks: [],
      xLabel: "standardised coefficient",
      label: `${picked.length} of ${total} columns selected. ` + few.slice(0, NAMED).map((j, k) => `${columns[j]}: ${short(mid[k], 3)}`).join("; "),
    });
    const zero = chart.toX(0);
    element(svg, "line", { x1: zero, x2: zero, y1: chart.top, y2: chart.height - chart.bottom, class: "zero" });
    few.forEach((j, k) => {
      const y = chart.toY(k);
      element(svg, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }, cut(columns[j]));
      if (low[k] !== null) element(svg, "line", { x1: chart.toX(low[k]), x2: chart.toX(high[k]), y1: y, y2: y, class: "bar" });
      element(svg, "circle", { cx: chart.toX(mid[k]), cy: y, r: 4, class: "dot" });
    });
  };

  let cursor = null; // moves the cursor of the path without drawing its curves again

  const drawPath = () => {
    const { columns, units, path, reported } = here();
    const svg = byId("path");
    const scaled = path.coef.map((values, j) => values.map((b) => b / units[j]));
    const gamma = path.gamma, ends = gamma.length > 1 ? [gamma[0], gamma.at(-1)] : [gamma[0] / 2, gamma[0] * 2];
    const chart = frame(svg, {
      x: ends, y: extent(scaled.flat()), height: 320, logX: true, right: 108,
      xLabel: "confidence γ in the coefficients", yLabel: "standardised coefficient",
      label: `Path of ${columns.length} coefficients over ${gamma.length} confidences from ${short(gamma[0])} to ${short(gamma.at(-1))}.`,
    });
    const curve = (j) => line(gamma.map((g, k) => [chart.toX(g), chart.toY(scaled[j][k])]));
    const rest = columns.map((_, j) => j).filter((j) => !reported.selected[j]);
    if (rest.length) element(svg, "path", { d: rest.map(curve).join(""), class: "faint" });
    const kept = columns.map((_, j) => j).filter((j) => reported.selected[j]);
    for (const j of kept) element(svg, "path", { d: curve(j), class: "curve" });
    nameCurves(svg, chart, kept, scaled);
    const mark = element(svg, "line", { y1: chart.top, y2: chart.height - chart.bottom, class: "cursor" });
    cursor = () => {
      const x = chart.toX(state.mode === "path" ? gamma[state.point] : Math.min(Math.max(reported.gamma, ends[0]), ends[1]));
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
      mark.style.display = state.mode === "dial" ? "none" : "";
    };
    cursor();
  };

  /* Names at the right end of the curves, moved apart. */
  const nameCurves = (svg, chart, kept, scaled) => {
    const size = (j) => Math.max(...scaled[j].map(Math.abs));
    const named = [...kept].sort((i, j) => size(j) - size(i)).slice(0, NAMED);
    const last = (j) => { const k = scaled[j].findLastIndex((b) => b !== 0); return scaled[j][k < 0 ? 0 : k]; };
    named.sort((i, j) => last(j) - last(i));
    let free = chart.top;
    for (const j of named) {
      const y = Math.max(chart.toY(last(j)) + 4, free + 12);
      free = y;
      element(svg, "text", { x: chart.width - chart.right + 6, y: Math.min(y, chart.height - 8) }, cut(here().columns[j], 16));
    }
  };

  const drawErrors = () => {
    const { dial } = here();
    const svg = byId("errors"), count = dial.error.length;
    const chart = frame(svg, {
      x: [-0.5, count - 0.5], y: extent([...dial.error, dial.mixture_error], 0.12), height: 320, bottom: 104, left: 58, right: 62, xTicks: [],
      yLabel: `held-out ${dial.error_name}`,
      label: `Held-out ${dial.error_name}: ` + dial.label.slice(0, count).map((name, k) => `${name} ${short(dial.error[k])}`).join("; ") + `; mixture ${short(dial.mixture_error)}.`,
    });
    const level = chart.toY(dial.mixture_error);
    element(svg, "line", { x1: chart.left, x2: chart.width - chart.right, y1: level, y2: level, class: "cursor" });
    element(svg, "text", { x: chart.width - chart.right + 6, y: level + 4 }, "mixture");
    for (let k = 0; k < count; k++) {
      const x = chart.toX(k), y = chart.toY(dial.error[k]), now = state.mode === "dial" && state.candidate === k;
      const look = now ? "now" : dial.estimate[k] ? "dot" : "out";
      if (dial.error[k] !== null) element(svg, "circle", { cx: x, cy: y, r: now ? 7 : 4 + 4 * Math.sqrt(dial.weight[k] ?? 0), class: look });
      const at = chart.height - chart.bottom + 14;
      element(svg, "text", { x: x + 4, y: at, "text-anchor": "end", transform: `rotate(-40 ${x + 4} ${at})`, class: "soft" }, dial.label[k].replace("exponential", "exp."));
    }
  };

  const drawHeld = () => {
    const { held } = here();
    const svg = byId("held");
    if (held.classes) return drawClasses(svg, held);
    const both = extent([...held.y, ...held.mean]);
    const chart = frame(svg, {
      x: both, y: both, height: 320, xLabel: "predicted, out of fold", yLabel: "truth",
      label: `Truth against out-of-fold prediction of ${held.rows} rows.`,
    });
    element(svg, "line", { x1: chart.toX(both[0]), x2: chart.toX(both[1]), y1: chart.toY(both[0]), y2: chart.toY(both[1]), class: "zero" });
    held.y.forEach((y, i) => element(svg, "circle", { cx: chart.toX(held.mean[i]).toFixed(1), cy: chart.toY(y).toFixed(1), r: 3, class: "point" }));
  };

  /* Two classes: a strip each, moved apart by the row's number so that points can be told. */
  const drawClasses = (svg, held) => {
    const chart = frame(svg, {
      x: [0, 1], y: [-0.5, 1.5], height: 320, yTicks: [0, 1], xLabel: "predicted probability, out of fold", yLabel: "truth",
      label: `Out-of-fold probability of ${held.rows} rows by their true class.`,
    });
    held.y.forEach((y, i) => {
      const off = 0.7 * (((i * 0.618034) % 1) - 0.5);
      element(svg, "circle", { cx: chart.toX(held.mean[i]).toFixed(1), cy: chart.toY(y + off).toFixed(1), r: 3, class: "point" });
    });
  };

  const drawCalibration = () => {
    const { held } = here();
    const svg = byId("calibration"), { expected, observed, lower, upper } = held.calibration;
    const chart = frame(svg, {
      x: [0, 1], y: [0, 1], height: 320, xLabel: held.classes ? "predicted probability" : "probability of the interval", yLabel: held.classes ? "how often it was so" : "share of rows inside",
      label: "Calibration: " + expected.map((e, k) => `${short(e, 2)} expected, ${short(observed[k], 2)} observed`).join("; "),
    });
    element(svg, "line", { x1: chart.toX(0), x2: chart.toX(1), y1: chart.toY(0), y2: chart.toY(1), class: "zero" });
    if (lower) lower.forEach((low, k) => element(svg, "line", { x1: chart.toX(expected[k]), x2: chart.toX(expected[k]), y1: chart.toY(low), y2: chart.toY(upper[k]), class: "bar" }));
    element(svg, "path", { d: line(expected.map((e, k) => [chart.toX(e), chart.toY(observed[k])])), class: "curve" });
    expected.forEach((e, k) => element(svg, "circle", { cx: chart.toX(e), cy: chart.toY(observed[k]), r: 3.5, class: "dot" }));
  };

  /* ---- table ------------------------------------------------------------------------------- */

  const fields = () => {
    const list = [
      ["name", "column"], ["estimate", "estimate"], ["lower", `lower ${percent} %`], ["upper", `upper ${percent} %`],
      ["size", "standardised"], ["until", "selected up to γ"],
    ];
    return here().reported.inclusion ? [...list, ["inclusion", "inclusion probability"]] : list;
  };

  const rowsOf = (shown) => {
    const { columns, units, path, reported } = here();
    const filter = byId("filter").value.trim().toLowerCase(), dropped = byId("dropped").checked;
    const rows = columns
      .map((name, j) => {
        const last = path.selected[j].lastIndexOf(1);
        const { estimate: e, lower: l, upper: u } = shown;
        return {
          name, estimate: e[j], lower: l[j], upper: u[j], size: e[j] === null ? null : e[j] / units[j],
          until: last < 0 ? null : path.gamma[last], inclusion: reported.inclusion?.[j], selected: shown.selected[j],
        };
      })
      .filter((row) => (dropped || row.selected) && row.name.toLowerCase().includes(filter));
    const key = (row) => (state.sort === "size" ? Math.abs(row.size ?? 0) : row[state.sort]);
    const sign = state.down ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === y) return 0;
      if (x === null) return 1;
      if (y === null) return -1;
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
  };

  const drawTable = (shown) => {
    const rows = rowsOf(shown), list = fields(), digits = byId("digits").checked ? 9 : 4;
    const visible = state.all ? rows : rows.slice(0, MOST_ROWS);
    byId("table").querySelector("tbody").replaceChildren(
      ...visible.map((row) => {
        const tr = document.createElement("tr");
        if (!row.selected) tr.className = "out";
        for (const [key, title] of list) {
          const cell = document.createElement(key === "name" ? "th" : "td");
          if (key === "name") cell.scope = "row";
          else cell.dataset.label = title;
          cell.textContent = key === "name" ? row.name : short(row[key], digits);
          tr.append(cell);
        }
        return tr;
      }),
    );
    byId("table-count").textContent = `${rows.length} of ${here().total} columns${rows.length > visible.length ? `, the first ${visible.length} shown` : ""}.`;
    byId("more").hidden = visible.length === rows.length;
    byId("more").textContent = `Show all ${rows.length}`;
    for (const th of byId("table").querySelectorAll("thead th"))
      if (th.dataset.key === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
  };

  const sortBy = (key, down) => {
    Object.assign(state, { sort: key, down });
    byId("sort").value = key;
    drawTable(view());
  };

  const drawHead = () => {
    byId("sort").replaceChildren(...fields().map(([key, title]) => new Option(title, key, false, key === state.sort)));
    byId("table").querySelector("thead tr").replaceChildren(
      ...fields().map(([key, title]) => {
        const th = document.createElement("th"), button = document.createElement("button");
        th.scope = "col";
        th.dataset.key = key;
        button.type = "button";
        button.textContent = title;
        button.addEventListener("click", () => sortBy(key, state.sort === key ? !state.down : key !== "name"));
        th.append(button);
        return th;
      }),
    );
  };

  /* ---- controls ---------------------------------------------------------------------------- */

  const describeSliders = () => {
    const { path, dial } = here();
    const confidence = byId("confidence"), candidate = byId("candidate");
    byId("confidence-shown").textContent = `γ = ${short(path.gamma[state.point])}`;
    confidence.setAttribute("aria-valuetext", `confidence ${short(path.gamma[state.point])}, ${path.count[state.point]} columns`);
    if (!dial) return;
    byId("candidate-shown").textContent = dial.label[state.candidate];
    candidate.setAttribute("aria-valuetext", dial.label[state.candidate]);
  };

  const update = () => {
    const shown = view();
    for (const radio of document.querySelectorAll("input[name=mode]")) radio.checked = radio.value === state.mode;
    describeSliders();
    byId("now").textContent = sentence();
    byId("code").textContent = shown.code;
    byId("copied").textContent = "";
    forest(shown);
    drawTable(shown);
    cursor?.();
    if (here().dial) drawErrors();
  };

  const drawAll = () => {
    const { dial, held } = here();
    drawPath();
    if (held) { drawHeld(); drawCalibration(); }
    update();
    if (dial) drawErrors();
  };

  const chooseTarget = (t) => {
    const target = data.targets[t];
    Object.assign(state, { target: t, mode: "reported", point: target.path.chosen, candidate: target.dial ? target.dial.label.length - 1 : 0, all: false });
    byId("confidence").max = target.path.gamma.length - 1;
    byId("confidence").value = state.point;
    byId("sparsity").textContent = target.reported.says;
    for (const id of ["dial-box", "dial-mode", "errors-card"]) byId(id).hidden = !target.dial;
    for (const id of ["held-card", "calibration-card"]) byId(id).hidden = !target.held;
    byId("nothing-held").hidden = Boolean(target.dial || target.held);
    const never = target.total - target.columns.length;
    byId("never").textContent = never ? `${never} columns were never selected along the path and are not in this page.` : "";
    if (target.dial) {
      byId("candidate").max = target.dial.label.length - 1;
      byId("candidate").value = state.candidate;
      byId("errors-note").textContent = "Larger marks have more weight; an empty mark was left behind and not fitted to all rows.";
    }
    if (target.held) {
      const { held } = target;
      byId("held-note").textContent = `${held.rows} rows in ${held.folds} folds, predicted by the mixture${held.y.length < held.rows ? `; ${held.y.length} of them drawn` : ""}.`;
      byId("calibration-note").textContent = held.classes ? `Ten groups of rows by predicted probability, with ${percent} % intervals; the line is perfect calibration.` : "Share of held-out rows inside central intervals; the line is perfect calibration.";
    }
    drawHead();
    drawAll();
  };

  data.targets.forEach((target, t) => byId("target").append(new Option(target.name, t)));
  byId("target-box").hidden = data.targets.length < 2;
  byId("target").addEventListener("change", (event) => chooseTarget(Number(event.target.value)));
  for (const [id, mode, key] of [["confidence", "path", "point"], ["candidate", "dial", "candidate"]])
    byId(id).addEventListener("input", (event) => {
      state.mode = mode;
      state[key] = Number(event.target.value);
      update();
    });
  for (const radio of document.querySelectorAll("input[name=mode]"))
    radio.addEventListener("change", () => { state.mode = radio.value; update(); });
  for (const id of ["filter", "dropped", "digits"]) byId(id).addEventListener("input", () => drawTable(view()));
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value, event.target.value !== "name"));
  byId("more").addEventListener("click", () => { state.all = true; drawTable(view()); });
  byId("copy").addEventListener("click", () => copy(byId("code"), byId("copied")));
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) { width = document.body.clientWidth; drawAll(); }
  }).observe(document.body);
  chooseTarget(0);
})();
