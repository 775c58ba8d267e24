"use strict";

(() => {
  const { byId, node, copy, csv, download, readAddress, writeAddress } = Tools;
  const { short } = Charts;
  const data = JSON.parse(byId("data").textContent);
  const MOST_ROWS = 40; // of a table, before a button asks for all
  const percent = Math.round(100 * data.level);
  const TABLE = ["estimate", "median", "lower", "upper"];
  const DROPPED = { estimate: 0, median: 0, lower: null, upper: null };

  /* Columns that were ever selected come first, then those that can only be looked up. */
  for (const target of data.targets) {
    target.names = [...target.columns, ...target.others.columns];
    target.units = [...target.units, ...target.others.units];
    if (target.inclusion) target.inclusion = [...target.inclusion, ...target.others.inclusion];
  }

  /* A setting is a mode and, for a path or a candidate, a place in it. */
  const state = { target: 0, setting: { mode: "sparse", at: 0 }, pins: [null, null], sort: "size", down: true, all: false };
  const here = () => data.targets[state.target];
  let moveCursor = () => {};

  /* ---- what a setting says ----------------------------------------------------------------- */

  /* Estimate, median, lower, upper and selected of every column of the page; intercept and Python. */
  const view = ({ mode, at }) => {
    const { columns, others, mixture, sparse, path, dial } = here();
    const rest = others.columns.length, padded = (list, value) => [...list, ...Array(rest).fill(value)];
    const zeros = (found) => ({ ...found, ...Object.fromEntries(TABLE.map((key) => [key, padded(found[key], DROPPED[key])])), selected: padded(found.selected, false) });
    if (mode === "mixture") {
      const all = Object.fromEntries(TABLE.map((key) => [key, [...mixture[key], ...others[key]]]));
      return { ...mixture, ...all, selected: all.estimate.map((b) => b !== 0), kept: padded(sparse.selected, false) };
    }
    if (mode === "sparse") return zeros(sparse);
    if (mode === "path") {
      const now = (lists) => lists.map((values) => values[at]), estimate = now(path.coef), half = now(path.half);
      const end = (sign) => estimate.map((b, j) => (half[j] === null ? null : b + sign * half[j]));
      return zeros({ estimate, median: estimate, lower: end(-1), upper: end(1), selected: now(path.selected).map(Boolean), intercept: [path.intercept[at], null, null, null], code: path.code[at] });
    }
    const own = Object.fromEntries(TABLE.map((key) => [key, padded(dial[key][at] ?? columns.map(() => null), null)]));
    return { ...own, selected: own.estimate.map((b) => b !== null && b !== 0), kept: padded(sparse.selected, false), intercept: null, code: dial.code[at] };
  };

  /* A confidence of the path in words; gamma is a threshold of the squared t-statistic. */
  const reading = (at) => {
    const { reading } = here().path;
    if (!reading) return "";
    return ` It keeps ${reading.what}, given the other columns as fitted, exceeds ${short(reading.threshold[at], 3)}; a column without an effect passes with probability ${short(reading.chance[at], 2)}.`;
  };

  const sentence = ({ mode, at }) => {
    const { path, dial, sparse, total } = here();
    if (mode === "mixture") return `Mixture of the candidates, which predictions are made from: ${dial.error_name} ${short(dial.mixture_error)} on held-out rows.`;
    if (mode === "sparse") {
      const again = sparse.refitted ? " The columns were then refitted with confidence 1." : "";
      return `Sparse point: ${sparse.selected.filter(Boolean).length} of ${total} columns, chosen at confidence ${short(sparse.gamma)}.${path.gamma[path.chosen] === sparse.gamma ? reading(path.chosen) : ""}${again}`;
    }
    if (mode === "path") {
      const noise = path.noise ? `, noise sd ${short(path.noise[at])}` : "";
      return `Confidence ${short(path.gamma[at])}: ${path.count[at]} of ${total} columns selected, intercept ${short(path.intercept[at])}${noise}.${reading(at)}`;
    }
    if (!dial.estimate[at]) return `${dial.label[at]}: left behind on held-out rows (${dial.error_name} ${short(dial.error[at])}), so it was not fitted to all rows.`;
    return `${dial.label[at]}: weight ${short(dial.weight[at], 2)}, ${dial.error_name} ${short(dial.error[at])}, about ${short(dial.columns[at], 3)} of ${total} columns.`;
  };

  const shortName = ({ mode, at }) => ({ mixture: "mixture", sparse: "sparse point", path: `path, γ = ${short(here().path.gamma[at] ?? null)}` })[mode] ?? here().dial.label[at];

  /* ---- the address ------------------------------------------------------------------------- */

  const written = ({ mode, at }) => (mode === "path" || mode === "candidate" ? `${mode}:${at}` : mode);
  const read = (text) => {
    const [mode, at] = (text ?? "").split(":"), target = here();
    const count = { mixture: target.mixture ? 1 : 0, sparse: 1, path: target.path.gamma.length, candidate: target.dial?.label.length ?? 0 }[mode] ?? 0;
    const place = Number(at ?? 0);
    return Number.isInteger(place) && place >= 0 && place < count ? { mode, at: place } : null;
  };
  const keepAddress = () =>
    writeAddress({ target: state.target || "", show: written(state.setting), a: state.pins[0] && written(state.pins[0]), b: state.pins[1] && written(state.pins[1]), ...whatIf?.setting() });

  /* ---- table ------------------------------------------------------------------------------- */

  const fields = () => {
    const list = [
      ["name", "column"], ["estimate", "estimate"], ["median", "median"], ["lower", `lower ${percent} %`], ["upper", `upper ${percent} %`],
      ["size", "standardised"], ["until", "selected up to γ"],
    ];
    return here().inclusion ? [...list, ["inclusion", "inclusion probability"]] : list;
  };

  /* All columns that the filter finds; without one those that are selected, or all of them. */
  const rowsOf = (shown) => {
    const { names, units, path, inclusion } = here();
    const filter = byId("filter").value.trim().toLowerCase(), all = byId("dropped").checked || filter !== "";
    const rows = [];
    names.forEach((name, j) => {
      if (!(all || shown.selected[j]) || !name.toLowerCase().includes(filter)) return;
      const last = path.selected[j]?.lastIndexOf(1) ?? -1, [estimate, median, lower, upper] = TABLE.map((key) => shown[key][j]);
      rows.push({
        name, estimate, median, lower, upper, size: estimate === null ? null : estimate / units[j],
        until: last < 0 ? null : path.gamma[last], inclusion: inclusion?.[j], selected: shown.selected[j],
      });
    });
    const key = (row) => (state.sort === "size" ? Math.abs(row.size ?? 0) : row[state.sort]);
    return rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === y) return 0;
      if (x === null || y === null) return x === null ? 1 : -1;
      return (state.down ? -1 : 1) * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
  };

  const interceptRow = ({ intercept }) => {
    const [estimate, median, lower, upper] = intercept ?? [];
    return intercept && { name: "(intercept)", estimate, median, lower, upper, selected: true };
  };

  const tableRow = (row, list, digits) => {
    const cells = list.map(([key, title]) => {
      if (key === "name") return node("th", { scope: "row", textContent: row.name });
      const cell = node("td", { textContent: short(row[key], digits) });
      cell.dataset.label = title;
      return cell;
    });
    return node("tr", { className: row.selected ? "" : "out" }, ...cells);
  };

  const drawTable = (shown) => {
    const rows = rowsOf(shown), list = fields(), digits = byId("digits").checked ? 9 : 4;
    const visible = state.all ? rows : rows.slice(0, MOST_ROWS), intercept = byId("filter").value ? null : interceptRow(shown);
    byId("table").tBodies[0].replaceChildren(...[intercept, ...visible].filter(Boolean).map((row) => tableRow(row, list, digits)));
    byId("table-count").textContent = `${shortName(state.setting)}: ${rows.length} of ${here().total} columns${rows.length > visible.length ? `, the first ${visible.length} shown` : ""}.`;
    byId("more").hidden = visible.length === rows.length;
    byId("more").textContent = `Show all ${rows.length}`;
    for (const th of byId("table").querySelectorAll("thead th"))
      if (th.dataset.key === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
  };

  const saveTable = () => {
    const shown = view(state.setting), list = fields();
    const rows = [interceptRow(shown), ...rowsOf(shown)].filter(Boolean).map((row) => list.map(([key]) => row[key]));
    download("coefficients.csv", "text/csv", csv([list.map(([, title]) => title), ...rows]));
  };

  const sortBy = (key, down) => {
    Object.assign(state, { sort: key, down });
    byId("sort").value = key;
    drawTable(view(state.setting));
  };

  const drawHead = () => {
    byId("sort").replaceChildren(...fields().map(([key, title]) => new Option(title, key, false, key === state.sort)));
    byId("table").tHead.rows[0].replaceChildren(
      ...fields().map(([key, title]) => {
        const button = node("button", { type: "button", textContent: title }), th = node("th", { scope: "col" }, button);
        th.dataset.key = key;
        button.addEventListener("click", () => sortBy(key, state.sort === key ? !state.down : key !== "name"));
        return th;
      }),
    );
  };

  /* A table without controls: text, or numbers to four digits. */
  const plainTable = (id, heads, rows) => {
    byId(id).tHead.replaceChildren(node("tr", {}, ...heads.map((head) => node("th", { scope: "col", textContent: head }))));
    byId(id).tBodies[0].replaceChildren(
      ...rows.map((row) => node("tr", {}, ...row.map((value, k) => {
        const cell = node(k ? "td" : "th", { textContent: typeof value === "string" ? value : short(value) });
        if (k) cell.dataset.label = heads[k];
        else cell.scope = "row";
        return cell;
      }))),
    );
  };

  /* ---- two settings side by side ----------------------------------------------------------- */

  const drawPins = () => {
    const some = state.pins.some(Boolean);
    byId("both-card").hidden = byId("unpin").hidden = byId("both-table").hidden = !some;
    if (!some) return;
    const pair = state.pins.map((pin) => pin ?? state.setting), views = pair.map(view);
    ["A", "B"].forEach((letter, k) => { byId(`says-${letter}`).textContent = `${letter}${state.pins[k] ? "" : " (not pinned: what is shown above)"}: ${sentence(pair[k])}`; });
    ExplorerCharts.forest("both", here(), views, percent);
    const { names, units } = here(), size = (j) => Math.max(...views.map((each) => Math.abs(each.median[j] ?? 0))) / units[j];
    const rows = names.map((_, j) => j).filter((j) => views.some((each) => each.selected[j])).sort((i, j) => size(j) - size(i)).slice(0, MOST_ROWS);
    const cell = (each, j) => (each.median[j] === null ? "–" : `${short(each.median[j])}${each.lower[j] === null ? "" : ` (${short(each.lower[j])} to ${short(each.upper[j])})`}`);
    plainTable("both-table", ["column", ...pair.map((setting, k) => `${"AB"[k]}: ${shortName(setting)}`)], rows.map((j) => [names[j], ...views.map((each) => cell(each, j))]));
  };

  const pin = (k) => { state.pins[k] = { ...state.setting }; drawPins(); keepAddress(); byId("pinned").textContent = `Pinned ${shortName(state.setting)} as ${"AB"[k]}.`; };

  /* ---- controls ---------------------------------------------------------------------------- */

  const describeSliders = () => {
    const { path, dial } = here(), point = byId("confidence").value, candidate = byId("candidate").value;
    byId("confidence-shown").textContent = `γ = ${short(path.gamma[point])}`;
    byId("confidence").setAttribute("aria-valuetext", `confidence ${short(path.gamma[point])}, ${path.count[point]} columns`);
    if (!dial) return;
    byId("candidate-shown").textContent = dial.label[candidate];
    byId("candidate").setAttribute("aria-valuetext", dial.label[candidate]);
  };

  const update = () => {
    const shown = view(state.setting), { mode, at } = state.setting;
    for (const radio of document.querySelectorAll("input[name=mode]")) radio.checked = radio.value === mode;
    describeSliders();
    byId("now").textContent = sentence(state.setting);
    byId("code").textContent = shown.code;
    byId("copied").textContent = byId("pinned").textContent = "";
    ExplorerCharts.forest("forest", here(), [shown], percent);
    drawTable(shown);
    drawPins();
    moveCursor(state.setting);
    if (here().dial) ExplorerCharts.errors(here().dial, mode === "candidate" ? at : -1);
    keepAddress();
  };

  const drawAll = () => {
    const { held, inclusion } = here();
    moveCursor = ExplorerCharts.path(here());
    if (inclusion) ExplorerCharts.inclusion(here());
    if (held) { ExplorerCharts.held(held); ExplorerCharts.calibration(held); }
    update();
  };

  const setMode = (mode) => {
    const slider = { path: "confidence", candidate: "candidate" }[mode];
    state.setting = { mode, at: slider ? Number(byId(slider).value) : 0 };
    update();
  };

  const describeTarget = (target) => {
    byId("sparsity").textContent = target.says;
    for (const id of ["dial-box", "dial-mode", "mixture-mode", "errors-card"]) byId(id).hidden = !target.dial;
    for (const id of ["held-card", "calibration-card"]) byId(id).hidden = !target.held;
    byId("inclusion-card").hidden = !target.inclusion;
    byId("nothing-held").hidden = Boolean(target.dial || target.held);
    const never = target.total - target.columns.length, missing = target.total - target.names.length;
    const least = missing ? `; the page holds ${never - missing} of them` : "";
    byId("never").textContent = never ? `${never === 1 ? "1 column was" : `${never} columns were`} never selected along the path${least}. Look them up by name: the mixture has an estimate of each, the path and the sparse point have 0.` : "";
    if (target.dial) byId("errors-note").textContent = "Larger marks have more weight; hollow ones predicted clearly worse and were dropped.";
    if (!target.held) return;
    const { rows, folds, y, classes } = target.held;
    byId("held-note").textContent = `${rows} rows in ${folds} folds, predicted by the mixture${y.length < rows ? `; ${y.length} of them drawn` : ""}.`;
    byId("calibration-note").textContent = classes.length ? "Ten groups of held-out rows by the probability that the mixture predicts, with 90 % intervals; the line is perfect calibration." : "Share of held-out rows inside central intervals of the mixture; the line is perfect calibration.";
  };

  const chooseTarget = (t, address = {}) => {
    state.target = t in data.targets ? t : 0;
    const target = here(), standard = target.mixture ? { mode: "mixture", at: 0 } : { mode: "sparse", at: 0 };
    Object.assign(state, { setting: read(address.show) ?? standard, pins: [read(address.a), read(address.b)], all: false });
    const { mode, at } = state.setting;
    const set = (id, count, value) => { byId(id).max = count - 1; byId(id).value = value; };
    set("confidence", target.path.gamma.length, mode === "path" ? at : target.path.chosen);
    if (target.dial) set("candidate", target.dial.label.length, mode === "candidate" ? at : 0);
    byId("target").value = state.target;
    describeTarget(target);
    drawHead();
    whatIf?.show(state.target);
    drawAll();
  };

  const drawSets = () => {
    byId("sets-card").hidden = !data.sets;
    if (!data.sets) return;
    const { columns, rows } = data.sets;
    byId("sets").hidden = !rows.length;
    plainTable("sets", columns, rows);
  };

  const drawConfusion = () => {
    byId("confusion-card").hidden = !data.confusion;
    if (!data.confusion) return;
    const { classes, counts } = data.confusion;
    plainTable("confusion", ["truth", ...classes.map((name) => `predicted ${name}`)], classes.map((name, k) => [name, ...counts[k].map(String)]));
    const right = classes.reduce((total, _, k) => total + counts[k][k], 0), all = counts.flat().reduce((a, b) => a + b, 0);
    byId("confusion-note").textContent = `Held-out rows by class, predicted by the mixture: ${right} of ${all} are right (${short((100 * right) / all, 3)} %).`;
    [...byId("confusion").tBodies[0].rows].forEach((row, k) => { row.cells[k + 1].className = "right"; });
  };

  const whatIf = data.what_if && makeWhatIf(data.what_if, { level: data.level, fitted: data.fitted, names: data.targets.map(({ name }) => name) }, () => keepAddress());
  byId("what-if").hidden = !whatIf;
  data.targets.forEach((target, t) => byId("target").append(new Option(target.name, t)));
  byId("target-box").hidden = data.targets.length < 2;
  byId("target").addEventListener("change", (event) => chooseTarget(Number(event.target.value)));
  for (const [id, mode] of [["confidence", "path"], ["candidate", "candidate"]]) byId(id).addEventListener("input", () => setMode(mode));
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", () => setMode(radio.value));
  for (const id of ["filter", "dropped", "digits"]) byId(id).addEventListener("input", () => drawTable(view(state.setting)));
  byId("digits").addEventListener("input", () => whatIf?.refresh());
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value, event.target.value !== "name"));
  byId("more").addEventListener("click", () => { state.all = true; drawTable(view(state.setting)); });
  byId("save").addEventListener("click", saveTable);
  byId("copy").addEventListener("click", () => copy(byId("code"), byId("copied")));
  ["A", "B"].forEach((letter, k) => byId(`pin-${letter}`).addEventListener("click", () => pin(k)));
  byId("unpin").addEventListener("click", () => { state.pins = [null, null]; drawPins(); keepAddress(); byId("pin-A").focus(); });
  drawSets();
  drawConfusion();
  const open = () => { const found = readAddress(); whatIf?.restore(found); chooseTarget(Number(found.target ?? 0), found); };
  addEventListener("hashchange", open);
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) { width = document.body.clientWidth; drawAll(); }
  }).observe(document.body);
  open();
})();
