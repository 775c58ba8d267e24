"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const names = ["width", "gamma", "prior-mean", "prior-sd", "data-mean", "count"];
  const powers = ["width", "gamma"]; // their sliders hold the logarithm to base 10
  const value = (name) => {
    const raw = Number(byId(name).value);
    return powers.includes(name) ? 10 ** raw : raw;
  };

  /* q is proportional to N(m, s²) exp(-loss/gamma). */
  const posterior = (m, s, y, n, gamma) => {
    const precision = 1 / s ** 2 + n / gamma;
    return { mean: (m / s ** 2 + (n * y) / gamma) / precision, sd: 1 / Math.sqrt(precision) };
  };

  const density = (x, { mean, sd }) => Math.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * Math.sqrt(2 * Math.PI));
  const show = (x) => (Math.abs(x) < 0.0005 ? "0" : x.toFixed(3).replace("-", "−"));

  const current = () => {
    const [m, s, y, n] = ["prior-mean", "prior-sd", "data-mean", "count"].map(value);
    return {
      m, s, y, n,
      prior: { mean: m, sd: s },
      likelihood: { mean: y, sd: 1 / Math.sqrt(n) },
      bayes: posterior(m, s, y, n, 1),
      wide: posterior(m, s * value("width"), y, n, 1),
      low: posterior(m, s, y, n, value("gamma")),
    };
  };

  const draw = (now) => {
    const svg = byId("picture");
    const top = Math.max(...[now.prior, now.likelihood, now.wide, now.low].map((q) => density(q.mean, q)));
    const chart = Charts.frame(svg, {
      x: [-6, 6], y: [0, 1.06 * top], height: 300, left: 16, yTicks: [], xLabel: "θ",
      label: `Densities. Prior: mean ${show(now.m)}, sd ${show(now.s)}. Prior widened: posterior mean ${show(now.wide.mean)}, sd ${show(now.wide.sd)}. Confidence lowered: posterior mean ${show(now.low.mean)}, sd ${show(now.low.sd)}.`,
    });
    const curve = (q, colour, width, dash) => {
      const points = [];
      for (let x = -6; x <= 6.0001; x += 0.02) points.push([chart.toX(x), chart.toY(density(x, q))]);
      const style = { d: Charts.line(points), fill: "none", stroke: `var(--${colour})`, "stroke-width": width };
      if (dash) style["stroke-dasharray"] = dash;
      Charts.element(svg, "path", style);
    };
    curve(now.prior, "quiet", 3);
    curve(now.likelihood, "soft", 2, "2 4");
    curve(now.wide, "two", 2.5, "8 4");
    curve(now.low, "one", 2.5);
  };

  const update = () => {
    for (const name of names) {
      const input = byId(name), shown = name === "count" ? String(value(name)) : Charts.short(value(name), 3);
      byId(`${name}-shown`).textContent = shown;
      input.setAttribute("aria-valuetext", shown);
    }
    const now = current();
    for (const which of ["bayes", "wide", "low"]) {
      byId(`${which}-mean`).textContent = show(now[which].mean);
      byId(`${which}-sd`).textContent = show(now[which].sd);
    }
    draw(now);
    say(now);
  };

  const say = ({ bayes, wide, low }) => {
    const change = (q) => (q.sd < bayes.sd - 5e-4 ? "narrower" : q.sd > bayes.sd + 5e-4 ? "wider" : "no wider");
    byId("says").textContent =
      `Compared with Bayes, changing the width of the prior makes the posterior ${change(wide)}, and changing the confidence makes it ${change(low)}.` +
      (change(wide) === "wider" && change(low) === "narrower" ? " Both move it to the data, but only the confidence does so while the posterior becomes narrower." : "");
  };

  /* Both means are equal when (s width)² = s²/gamma. */
  byId("match").addEventListener("click", () => {
    byId("width").value = -0.5 * Number(byId("gamma").value);
    update();
  });
  for (const name of names) byId(name).addEventListener("input", update);
  new ResizeObserver(() => draw(current())).observe(byId("picture").parentElement);
  update();
})();
