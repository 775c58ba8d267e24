"use strict";

/* Enter or pick a row: its prediction, and what each column adds to it. */
const makeWhatIf = (data, { level, fitted, names }, changed) => {
  const { byId, node } = Tools;
  const { short } = Charts;
  const FIRST = 12; // columns that are shown at once
  const { views, baseValues, predict, explain } = makePredictor(data, level);
  const percent = Math.round(100 * level);
  const state = { row: 0, view: 0, target: 0, edited: [...baseValues(0)], all: false };

  const positive = "in the logarithm of the mean";
  const scale = () => ({
    number: "in units of the target", risk: "in log risk, against the mean of the data", ordered: "in log odds of a higher class",
    odds: `in log odds of ${data.classes?.length === 2 ? data.classes[1] : names[state.target]}`, softmax: `in the score of ${names[state.target]}`,
  })[data.kind] ?? positive;

  const HEADS = { name: "", mean: "mean", probability: "probability", sd: "sd", lower: `lower ${percent} %`, upper: `upper ${percent} %` };
  const digits = () => (byId("digits").checked ? 12 : 4);

  const drawPrediction = () => {
    const valid = state.edited.every(Number.isFinite);
    byId("what-if-says").textContent = valid ? "" : "Enter a number in every field to see a prediction.";
    byId("prediction").hidden = byId("share-sum").hidden = !valid;
    if (!valid) return;
    const rows = predict(state.view, state.target, state.row, state.edited);
    const keys = Object.keys(HEADS).filter((key) => key === "name" || rows.some((row) => row[key] !== undefined));
    byId("prediction").tHead.replaceChildren(node("tr", {}, ...keys.map((key) => node("th", { scope: "col", textContent: HEADS[key] || "prediction" }))));
    byId("prediction").tBodies[0].replaceChildren(
      ...rows.map((row) =>
        node("tr", {}, ...keys.map((key) => {
          if (key === "name") return node("th", { scope: "row", textContent: row.name ?? (names[state.target] || "new value") });
          const cell = node("td", { textContent: short(row[key], digits()) });
          cell.dataset.label = HEADS[key];
          return cell;
        })),
      ),
    );
    drawShares();
  };

  const drawShares = () => {
    const found = explain(state.view, state.target, state.row, state.edited);
    const shares = fields.map(({ columns }) => columns.reduce((total, i) => total + found.each[i], 0));
    const most = Math.max(...shares.map(Math.abs), 1e-300);
    shares.forEach((share, k) => {
      const cell = byId(`share-${k}`), bar = cell.lastChild.firstChild, width = (50 * Math.abs(share)) / most;
      cell.firstChild.textContent = short(share, digits());
      bar.style.width = `${width}%`;
      bar.style.marginLeft = `${share < 0 ? 50 - width : 50}%`;
      bar.className = share < 0 ? "less" : "more";
    });
    const others = data.others ? ` + ${short(found.others, digits())} of ${data.others} other columns` : "";
    byId("share-sum").textContent = `${short(found.total, digits())} = ${short(found.start, digits())} at the mean of the data + the shares${others}, ${scale()}.`;
  };

  /* A field is a column, or a category with its columns of 0 and 1; they stand in the order of the columns. */
  const categoryOf = (i) => data.categories.find(({ columns }) => columns.includes(i));
  const fields = data.columns
    .map((name, i) => { const category = categoryOf(i); return category ? { ...category, columns: category.columns.filter((j) => j >= 0), places: category.columns } : { name, columns: [i] }; })
    .filter((field, i) => Math.min(...field.columns) === i);

  const edit = (changes) => { for (const [i, x] of changes) state.edited[i] = x; drawPrediction(); changed(); };

  const numberInput = ({ name, columns: [i] }, id) => {
    const input = node("input", { type: "number", step: data.steps[i], value: state.edited[i], id, ariaLabel: `value of ${name}` });
    input.addEventListener("input", () => edit([[i, input.value === "" ? NaN : Number(input.value)]]));
    return input;
  };

  /* The means of the data are between categories: then no label is chosen. */
  const categoryInput = ({ name, labels, places, columns }, id) => {
    const input = node("select", { id, ariaLabel: `value of ${name}` });
    const holds = (label) => columns.every((i) => state.edited[i] === Number(places[label] === i));
    const now = labels.findIndex((_, label) => holds(label));
    if (now < 0) input.append(new Option("average", "", true, true));
    labels.forEach((text, label) => input.append(new Option(text, label, false, label === now)));
    input.addEventListener("change", () => edit(columns.map((i) => [i, input.value === "" ? baseValues(state.row)[i] : Number(places[Number(input.value)] === i)])));
    return input;
  };

  const drawInputs = () => {
    byId("shares").tBodies[0].replaceChildren(
      ...fields.map((field, k) => {
        const input = (field.labels ? categoryInput : numberInput)(field, `value-${k}`);
        const value = node("td", {}, input), share = node("td", { id: `share-${k}` }, node("span"), node("span", { className: "share" }, node("span")));
        [value.dataset.label, share.dataset.label] = ["value", "share"];
        return node("tr", { hidden: k >= FIRST && !state.all }, node("th", { scope: "row", textContent: field.name }), value, share);
      }),
    );
    byId("all-values").hidden = state.all || fields.length <= FIRST;
    byId("all-values").textContent = `Show all ${fields.length} columns`;
    byId("view-says").textContent = `${views[state.view] === "mixture" ? `Predictions are from the full model, as ${fitted}.${method}` : `Predictions are from the sparse point, as ${fitted}${views.length > 1 ? ".sparse_" : ""}.${method}`}.${data.others ? ` The page holds ${data.columns.length} columns that matter most; the other ${data.others} stay as they are in the row.` : ""}`;
  };
  const method = data.classes ? "predict_proba" : data.kind === "risk" ? "predict and predict_survival_function" : "predict";

  const draw = () => { drawInputs(); drawPrediction(); };

  const pick = (row) => { state.row = row; state.edited = [...baseValues(row)]; draw(); changed(); };

  data.rows.forEach((name, r) => byId("row").append(new Option(name, r)));
  views.forEach((name, v) => byId("view").append(new Option(name, v)));
  byId("view-box").hidden = views.length < 2;
  byId("row").addEventListener("change", (event) => pick(Number(event.target.value)));
  byId("view").addEventListener("change", (event) => { state.view = Number(event.target.value); draw(); changed(); });
  byId("reset").addEventListener("click", () => pick(state.row));
  byId("all-values").addEventListener("click", () => { state.all = true; drawInputs(); drawShares(); byId(`value-${FIRST}`).focus(); });

  /* For the address: the row, the view, and the values that differ from the row's. */
  const setting = () => {
    const base = baseValues(state.row);
    const edits = state.edited.map((x, i) => (x === base[i] || Number.isNaN(x) ? "" : `${i}:${x}`)).filter(Boolean);
    return { row: state.row || "", with: state.view || "", x: edits.join(",") };
  };
  const restore = (found) => {
    const within = (text, count) => (Number(text) >= 0 && Number(text) < count ? Math.floor(Number(text)) : 0);
    state.row = within(found.row ?? 0, data.rows.length);
    state.view = within(found.with ?? 0, views.length);
    state.edited = [...baseValues(state.row)];
    for (const edit of (found.x ?? "").split(",").filter(Boolean)) {
      const [i, x] = edit.split(":").map(Number);
      if (i in state.edited && Number.isFinite(x)) state.edited[i] = x;
    }
    byId("row").value = state.row;
    byId("view").value = state.view;
    draw();
  };
  const show = (target) => { state.target = target; draw(); };

  return { show, setting, restore, refresh: drawPrediction };
};
