"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { element, short, frame, line } = Charts;
  const { blocks, sliders, places, reference, quantities, scores } = data;
  const NOTABLE = 0.05; // sds by which a mean, or share by which an sd, has moved
  const NAMED = 3; // quantities that are named in words
  /* Verdicts from the best to the worst; draws with weights have none. */
  const COLOURS = { "": "var(--three)", trusted: "var(--three)", rough: "var(--two)", "not checked": "var(--quiet)", "not to be used": "var(--bad)" };
  const VERDICTS = {
    "": "The weights of the draws hold here.",
    trusted: "Verdict here: trusted (means are expected within 0.10 sd of the exact ones).",
    rough: "Verdict here: rough (means are expected within 0.25 sd).",
    "not checked": "Not checked here.",
    "not to be used": "Verdict here: not to be used. Fit the model at these confidences alone.",
  };
  const before = data.is_bayes ? "Bayes" : "the start";
  const index = sliders.map((slider) => slider.stops.indexOf(nearest(slider.stops, data.start[slider.block])));

  function nearest(stops, gamma) {
    return stops.reduce((best, x) => (Math.abs(Math.log(x / gamma)) < Math.abs(Math.log(best / gamma)) ? x : best));
  }

  const gammas = (at = index) => ({ ...data.start, ...Object.fromEntries(sliders.map((s, i) => [s.block, s.stops[at[i]]])) });

  /* ---- interpolation: linear in the log confidences, of positive sds and KLs the logarithm --- */

  const corners = (at) => {
    let found = [[0, 1]];
    sliders.forEach(({ grid, stops }, i) => {
      const x = Math.log(stops[at[i]]);
      let k = grid.findIndex((g) => g >= x - 1e-6) - 1;
      k = Math.min(Math.max(k, 0), grid.length - 2);
      const share = Math.min(Math.max((x - grid[k]) / (grid[k + 1] - grid[k]), 0), 1);
      found = found.flatMap(([base, weight]) => [
        [base * grid.length + k, weight * (1 - share)],
        [base * grid.length + k + 1, weight * share],
      ]);
    });
    return found.filter(([, weight]) => weight > 1e-4).map(([place, weight]) => [places[place], weight]);
  };

  const mix = (parts, pick) => parts.reduce((total, [place, weight]) => total + weight * pick(place), 0);
  const scale = (parts, pick) => {
    const values = parts.map(([place]) => pick(place));
    if (values.some((x) => x === null)) return null;
    return values.every((x) => x > 0) ? Math.exp(mix(parts, (place) => Math.log(pick(place)))) : mix(parts, pick);
  };

  /* The worst verdict of some places; null if one of them has no posterior. */
  const worst = (parts) => {
    const order = Object.keys(COLOURS);
    if (parts.some(([place]) => place === null)) return null;
    return order[Math.max(...parts.map(([place]) => order.indexOf(place.verdict)))];
  };

  /* Everything at the present position; null where the posterior is not known. */
  const present = (at = index) => {
    const parts = corners(at), verdict = worst(parts);
    if (verdict === null) return null;
    return {
      value: mix(parts, (place) => place.value),
      kl: blocks.map((_, b) => scale(parts, (place) => place.kl[b])),
      mean: quantities.map((_, q) => mix(parts, (place) => place.mean[q])),
      sd: quantities.map((_, q) => scale(parts, (place) => place.sd[q])),
      curve: quantities.map((_, q) => scores.map((_, j) => mix(parts, (place) => place.curve[q][j]))),
      verdict,
    };
  };

  /* ---- marginals --------------------------------------------------------------------------- */

  /* Density at midpoints between quantiles: the normal density of the score over the slope. */
  const density = (curve) => {
    const found = [];
    for (let j = 0; j + 1 < curve.length; j++) {
      const width = curve[j + 1] - curve[j], z = 0.5 * (scores[j] + scores[j + 1]);
      if (width > 0) found.push([0.5 * (curve[j] + curve[j + 1]), (Math.exp(-0.5 * z * z) * (scores[j + 1] - scores[j])) / width]);
    }
    return found;
  };

  const limits = quantities.map((_, q) => {
    const known = [reference, ...places.filter(Boolean)].map((place) => place.curve[q]);
    return Charts.extent([...known.map((c) => c[4]), ...known.map((c) => c.at(-5))], 0.03);
  });
  const first = reference.curve.map(density);

  const drawMarginal = (q, now) => {
    const svg = byId(`marginal-${q}`), curves = [first[q], ...(now ? [density(now.curve[q])] : [])];
    const top = Math.max(...curves.flat().map(([, y]) => y), 1e-300);
    const says = now ? `mean ${short(now.mean[q], 3)}, sd ${short(now.sd[q], 3)}` : "not known here";
    const chart = frame(svg, {
      x: limits[q], y: [0, 1.06 * top], height: 150, left: 8, bottom: 26, yTicks: [],
      label: `Marginal of ${quantities[q]}: ${says}; ${before}: mean ${short(reference.mean[q], 3)}, sd ${short(reference.sd[q], 3)}.`,
    });
    const inside = ([x]) => x >= limits[q][0] && x <= limits[q][1];
    const draw = (points, look) => element(svg, "path", { d: line(points.filter(inside).map(([x, y]) => [chart.toX(x), chart.toY(y)])), class: look });
    draw(curves[0], "before");
    if (now) draw(curves[1], "now");
  };

  /* ---- tables ------------------------------------------------------------------------------ */

  const fill = (id, titles, rows) => {
    const table = byId(id);
    const cell = (tag, content, title) => {
      const node = document.createElement(tag);
      if (tag === "th") node.scope = title === undefined ? "col" : "row";
      else node.dataset.label = title;
      node.append(content);
      return node;
    };
    table.querySelector("thead tr").replaceChildren(...titles.map((title) => cell("th", title)));
    table.querySelector("tbody").replaceChildren(
      ...rows.map((row) => {
        const tr = document.createElement("tr");
        tr.append(...row.map((content, i) => cell(i ? "td" : "th", content, titles[i])));
        return tr;
      }),
    );
  };

  const bar = (kl, most) => {
    const box = document.createElement("span"), mark = document.createElement("span");
    mark.className = "bar";
    mark.style.width = `${(6 * Math.max(kl ?? 0, 0)) / (most || 1)}rem`;
    box.append(mark, short(kl, 3));
    return box;
  };

  const drawTables = (now) => {
    const gamma = gammas(), most = Math.max(...reference.kl, ...(now?.kl ?? []));
    const rows = blocks.map((block, b) => [block, short(gamma[block], 3), now ? bar(now.kl[b], most) : "–", short(reference.kl[b], 3)]);
    rows.push(["V", "", now ? short(now.value, 5) : "–", short(reference.value, 5)]);
    fill("blocks", ["block", "confidence", "KL", `KL, ${before}`], rows);
    const at = (curve, p) => {
      const k = scores.findIndex((z) => z >= p), share = (p - scores[k - 1]) / (scores[k] - scores[k - 1]);
      return short(curve[k - 1] + share * (curve[k] - curve[k - 1]), 3);
    };
    fill(
      "table",
      ["quantity", "mean", "sd", "5 %", "95 %", `mean, ${before}`, `sd, ${before}`],
      quantities.map((name, q) => [
        name,
        ...(now ? [short(now.mean[q], 4), short(now.sd[q], 4), at(now.curve[q], -1.645), at(now.curve[q], 1.645)] : ["–", "–", "–", "–"]),
        short(reference.mean[q], 4),
        short(reference.sd[q], 4),
      ]),
    );
  };

  /* ---- words ------------------------------------------------------------------------------- */

  const joined = (parts) => (parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`);

  const sentence = (now) => {
    const moved = sliders
      .map(({ block }) => [block, gammas()[block], data.start[block]])
      .filter(([, gamma, start]) => Math.abs(Math.log(gamma / start)) > 1e-3);
    if (!moved.length) return data.is_bayes ? "All confidences are 1: this is Bayes' posterior." : "All confidences are where they started.";
    const how = joined(moved.map(([block, gamma, start], i) => `${gamma < start ? "lowering" : "raising"} ${i ? "that" : "the confidence"} in ${block} to ${short(gamma, 2)}`));
    const head = how[0].toUpperCase() + how.slice(1);
    if (!now) return `${head} leads to where the weights of the draws do not hold. Fit the model there.`;
    const size = (q) => Math.max(Math.abs(now.mean[q] - reference.mean[q]) / reference.sd[q], Math.abs(Math.log(now.sd[q] / reference.sd[q])));
    const changed = quantities.map((_, q) => q).filter((q) => size(q) > NOTABLE).sort((a, b) => size(b) - size(a));
    if (!changed.length) return `${head} changes no mean and no sd by more than ${NOTABLE * 100} % of an sd.`;
    const named = changed.slice(0, NAMED).map((q) => `${quantities[q]} from ${short(reference.mean[q], 3)} to ${short(now.mean[q], 3)} (sd ${short(reference.sd[q], 3)} to ${short(now.sd[q], 3)})`);
    const more = changed.length - named.length;
    return `${head} moves ${joined(named)}${more ? `, and ${more} more by less` : ""}.`;
  };

  /* ---- controls ---------------------------------------------------------------------------- */

  /* A strip under every slider: the verdict along it, the other sliders as they are. */
  const drawReach = () => {
    sliders.forEach((slider, i) => {
      const count = slider.stops.length, known = [];
      for (let k = 0; k < count; k++) {
        const verdict = worst(corners(index.map((own, j) => (j === i ? k : own))));
        const colour = verdict === null ? "var(--line)" : COLOURS[verdict];
        known.push(`${colour} ${(100 * k) / count}% ${(100 * (k + 1)) / count}%`);
      }
      byId(`reach-${i}`).style.background = `linear-gradient(to right, ${known.join(", ")})`;
    });
  };

  const update = () => {
    const now = present(), at = gammas();
    document.body.classList.toggle("out", !now);
    document.body.dataset.verdict = now ? now.verdict : "out";
    sliders.forEach(({ block }, i) => {
      byId(`slider-${i}`).value = index[i];
      byId(`shown-${i}`).textContent = short(at[block], 3);
      byId(`slider-${i}`).setAttribute("aria-valuetext", `confidence ${short(at[block], 3)}`);
    });
    byId("verdict").textContent = now ? VERDICTS[now.verdict] : "The draws do not reach these confidences.";
    byId("says").textContent = sentence(now);
    const call = sliders.map(({ block }) => `${JSON.stringify(block)}: ${Number(at[block].toPrecision(4))}`).join(", ");
    byId("code").textContent = `posterior = family.at({${call}})`;
    quantities.forEach((_, q) => drawMarginal(q, now));
    drawTables(now);
    drawReach();
  };

  sliders.forEach((_, i) =>
    byId(`slider-${i}`).addEventListener("input", (event) => { index[i] = Number(event.target.value); update(); }),
  );
  byId("reference-name").textContent = data.is_bayes ? "Bayes: all confidences 1" : `at the start: ${blocks.map((b) => `${b} ${short(data.start[b], 3)}`).join(", ")}`;
  byId("back").textContent = data.is_bayes ? "Back to Bayes" : "Back to the start";
  byId("back").addEventListener("click", () => {
    sliders.forEach(({ stops, block }, i) => { index[i] = stops.indexOf(nearest(stops, data.start[block])); });
    update();
  });
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) { width = document.body.clientWidth; update(); }
  }).observe(document.body);
  update();
})();
