"use strict";

/* The predictions of a fit, from the posteriors that the page holds: the same numbers as predict. */
const makePredictor = (data, level) => {
  const unpack = (text) => new Float64Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const unpackAll = (part) =>
    Object.fromEntries(Object.entries(part).map(([key, value]) => [key, typeof value === "string" ? unpack(value) : value]));
  const { kind, classes = [], size } = data;
  const count = data.columns.length;
  const [weights, points, basis] = ["weights", "points", "basis"].map((key) => (data[key] ? unpack(data[key]) : null));
  const values = unpack(data.values);
  const views = data.views.map(({ name, targets, curves }) => ({
    name, curves: curves && unpackAll(curves),
    targets: targets.map((target) => ({ ...target, shapes: target.shapes.map(unpackAll), parts: target.parts.map(unpackAll) })),
  }));
  const tails = [(1 - level) / 2, (1 + level) / 2];
  const sum = (list, of) => list.reduce((total, each, k) => total + of(each, k), 0);
  const baseValues = (row) => values.subarray(row * count, (row + 1) * count);

  /* ---- predictors: means and covariances of every component -------------------------------- */

  /* (size x size): x'S x at a base plus changes d. */
  const covariance = (shape, row, d) => {
    const found = new Float64Array(size * size);
    const square = size * size;
    for (let a = 0; a < size; a++)
      for (let b = 0; b < size; b++) {
        let total = shape.base[row * square + a * size + b];
        for (let i = 0; i < count; i++) {
          if (!d[i]) continue;
          const at = (row * count + i) * square;
          total += d[i] * (shape.across[at + a * size + b] + shape.across[at + b * size + a]);
          for (let k = 0; k < count; k++) total += d[i] * d[k] * shape.inside[((i * size + a) * count + k) * size + b];
        }
        found[a * size + b] = total;
      }
    return found;
  };

  const predictors = (target, row, d) => {
    const spreads = target.shapes.map((shape) => covariance(shape, row, d));
    return target.parts.map((part) => ({
      ...part,
      mean: Array.from({ length: size }, (_, a) => part.mean[row * size + a] + sum([...d], (step, i) => step * part.coef[i * size + a])),
      spread: spreads[part.shape].map((v, k) => (k % (size + 1) ? v : Math.max(v, 0))),
    }));
  };

  /* ---- kinds ------------------------------------------------------------------------------- */

  const moments = (parts, mean, variance) => {
    const centre = sum(parts, (part) => part.weight * mean(part));
    return { mean: centre, variance: sum(parts, (part) => part.weight * (variance(part) + (mean(part) - centre) ** 2)) };
  };

  /* Of normal predictors, without noise: the posterior of alpha + x'beta. */
  const predictorQuantiles = (parts) => {
    const { mean, variance } = moments(parts, (p) => p.mean[0], (p) => p.spread[0]);
    const below = (x) => sum(parts, (p) => p.weight * (p.spread[0] > 0 ? Special.normal((x - p.mean[0]) / Math.sqrt(p.spread[0])) : Number(x >= p.mean[0])));
    return tails.map((q) => Special.quantile(below, q, mean, Math.sqrt(variance) || 1e-12));
  };

  const predictNumber = ([parts]) => {
    const variance = (p) => p.inflation * (p.spread[0] + p.noise);
    const found = moments(parts, (p) => p.mean[0], variance);
    const below = (y) =>
      sum(parts, (p) => {
        const z = (y - p.mean[0]) / Math.sqrt(variance(p) * p.share);
        return p.weight * (p.degrees === null ? Special.normal(z) : Special.student(z, p.degrees));
      });
    const sd = Math.sqrt(found.variance), [lower, upper] = tails.map((q) => Special.quantile(below, q, found.mean, sd));
    return [{ mean: found.mean, sd, lower, upper }];
  };

  /* E[sigma(eta)]: a mixture of eight probits, each of which averages exactly. */
  const meanProbability = (mean, variance) =>
    sum([...weights], (w, k) => w * Special.normal((mean * points[k]) / Math.sqrt(1 + variance * points[k] ** 2)));
  const powered = (odds, power) => { const raised = odds ** power; return raised === Infinity ? 1 : raised / (1 + raised); };

  const predictOdds = (targets, power) => {
    const each = targets.map((parts, t) => {
      const average = (sign) => sum(parts, (p) => p.weight * meanProbability(sign * p.mean[0], p.inflation * p.spread[0]));
      const [lower, upper] = predictorQuantiles(parts).map((eta) => powered(Math.exp(eta), power[t]));
      return { probability: powered(average(1) / average(-1), power[t]), lower, upper };
    });
    if (each.length === 1) {
      const [{ probability, lower, upper }] = each;
      return [{ name: classes[0], probability: 1 - probability, lower: 1 - upper, upper: 1 - lower }, { name: classes[1], ...each[0] }];
    }
    const total = sum(each, ({ probability }) => probability);
    return each.map(({ probability, lower, upper }, k) => ({
      name: classes[k], probability: probability / total, lower: lower / total, upper: Math.min(upper / total, 1),
    }));
  };

  /* Recalibration: normal scores of a distribution function are divided by the root of widen, levels multiplied with it. */
  const score = (p) => (p <= 0 ? -Infinity : p >= 1 ? Infinity : Special.quantile(Special.normal, p, 0, 1));
  const widened = (p, factor) => { const z = score(p) * factor; return z === Infinity ? 1 : z === -Infinity ? 0 : Special.normal(z); };

  const predictOrdered = ([parts], _, [widen]) => {
    const chances = parts.map((p) => {
      const below = [...p.cuts].map((cut, k) => meanProbability(cut - p.mean[0], p.inflation * p.spread[0] + p.cut_variances[k]));
      const found = [...below, 1].map((b, k) => Math.max(b - (k ? below[k - 1] : 0), 1e-300));
      const total = sum(found, (c) => c);
      return found.map((c) => c / total);
    });
    const mixed = classes.map((_, k) => sum(parts, (p, i) => p.weight * chances[i][k]));
    if (widen === 1) return classes.map((name, k) => ({ name, probability: mixed[k] }));
    const below = mixed.map((_, k) => (k === mixed.length - 1 ? 1 : widened(Math.min(sum(mixed.slice(0, k + 1), (c) => c), 1), 1 / Math.sqrt(widen))));
    const found = below.map((b, k) => Math.max(b - (k ? below[k - 1] : 0), 1e-300)), total = sum(found, (c) => c);
    return classes.map((name, k) => ({ name, probability: found[k] / total }));
  };

  /* The lower root of a covariance; a diagonal one has the roots of its diagonal. */
  const root = (V) => {
    const L = new Float64Array(size * size);
    const trace = sum(Array.from({ length: size }), (_, a) => V[a * size + a]);
    for (let a = 0; a < size; a++)
      for (let b = 0; b <= a; b++) {
        let left = V[a * size + b] + (a === b ? 1e-12 * trace + 1e-300 : 0);
        for (let k = 0; k < b; k++) left -= L[a * size + k] * L[b * size + k];
        L[a * size + b] = a === b ? Math.sqrt(left) : left / L[b * size + b];
      }
    return L;
  };

  /* Softmax shares of the classes, averaged over the nodes: mean and mean square. */
  const shares = (mean, V) => {
    const L = root(V), first = classes.map(() => 0), second = classes.map(() => 0);
    weights.forEach((w, s) => {
      const u = mean.map((m, a) => m + sum(Array.from({ length: size }), (_, b) => L[a * size + b] * points[s * size + b]));
      const eta = classes.map((_, k) => sum(u, (value, a) => basis[k * size + a] * value));
      const top = Math.max(...eta), raised = eta.map((e) => Math.exp(e - top)), total = sum(raised, (r) => r);
      raised.forEach((r, k) => { first[k] += (w * r) / total; second[k] += w * (r / total) ** 2; });
    });
    return { first, second };
  };

  const predictSoftmax = ([parts], [power]) => {
    const posterior = parts.map((p) => shares(p.mean, p.spread));
    const said = parts.map((p, i) => (p.inflation === 1 ? posterior[i] : shares(p.mean, p.spread.map((v) => p.inflation * v))));
    const average = (list, key, k) => sum(parts, (p, i) => p.weight * list[i][key][k]);
    const raised = classes.map((_, k) => average(said, "first", k) ** power), total = sum(raised, (r) => r);
    return classes.map((name, k) => ({
      name, probability: raised[k] / total,
      sd: Math.sqrt(Math.max(average(posterior, "second", k) - average(posterior, "first", k) ** 2, 0)),
    }));
  };

  /* Counts and positive numbers with mean exp(eta): averages over 40 nodes of eta. */
  const below = {
    poisson: (y, mean) => Special.poisson(Math.floor(y), mean),
    "negative binomial": (y, mean, size) => Special.negativeBinomial(Math.floor(y), mean, size),
    gamma: (y, mean, shape) => Special.gamma(Math.max(y, 0), shape, mean),
  };

  const predictPositive = ([parts], _, [widen]) => {
    const nodes = parts.map((p) => [...points].map((z) => Math.exp(p.mean[0] + Math.sqrt(p.inflation * p.spread[0]) * z)));
    const expected = (p) => Math.exp(p.mean[0] + (p.inflation * p.spread[0]) / 2);
    const variance = (p) => {
      const mu = nodes[parts.indexOf(p)], centre = sum(mu, (m, s) => weights[s] * m), [one, two] = p.variance;
      return sum(mu, (m, s) => weights[s] * (one * m + two * m * m + (m - centre) ** 2));
    };
    const found = moments(parts, expected, variance), sd = Math.sqrt(widen * found.variance);
    const cdf = (y) =>
      sum(parts, (p, i) => p.weight * sum(nodes[i], (mu, s) => weights[s] * (p.values ? sum([...p.values], (v, k) => p.value_weights[k] * below[kind](y, mu, v)) : below[kind](y, mu))));
    const whole = kind !== "gamma";
    const ends = tails.map((q) => Special.quantile(cdf, widen === 1 ? q : widened(q, Math.sqrt(widen)), found.mean, sd + 1, whole, 0));
    return [{ mean: found.mean, sd, lower: ends[0], upper: ends[1] }];
  };

  const predictRisk = ([parts]) => {
    const mean = sum(parts, (p) => p.weight * p.mean[0]), [lower, upper] = predictorQuantiles(parts);
    const ratio = { name: "hazard ratio", mean: Math.exp(mean), lower: Math.exp(lower), upper: Math.exp(upper) };
    return [{ name: "log risk", mean, lower, upper }, ratio];
  };

  const quantileOf = (values, q) => {
    const sorted = [...values].sort((a, b) => a - b), at = q * (sorted.length - 1), low = Math.floor(at);
    return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  };

  /* The probability to survive a time: averages and quantiles over draws of the coefficients and the baseline hazard. */
  const survival = ({ times, expected, drawn, coef, base }, row, d) => {
    const draws = expected.length / times.length;
    const risk = Array.from({ length: draws }, (_, s) => {
      const eta = base[row * draws + s] + sum([...d], (step, i) => step * coef[s * count + i]);
      return Math.exp(Math.min(Math.max(eta, -300), 300));
    });
    const beyond = (hazard, t) => risk.map((r, s) => Math.exp(-hazard[t * draws + s] * r));
    return times.map((time, t) => {
      const [lower, upper] = tails.map((q) => quantileOf(beyond(drawn, t), q));
      return { name: `survives ${Charts.short(time)}`, mean: sum(beyond(expected, t), (p) => p) / draws, lower, upper };
    });
  };

  const predictKind = { number: predictNumber, odds: predictOdds, ordered: predictOrdered, softmax: predictSoftmax, risk: predictRisk }[kind] ?? predictPositive;

  /* Predictions of one view at a row with its edited values: rows of a table, of one target for numbers. */
  const predict = (view, target, row, edited) => {
    const base = baseValues(row), d = Float64Array.from(edited, (value, i) => value - base[i]);
    const all = views[view].targets, used = kind === "odds" ? all : [all[kind === "softmax" ? 0 : target]];
    const rows = predictKind(used.map((t) => predictors(t, row, d)), used.map((t) => t.power), used.map((t) => t.widen));
    return views[view].curves ? [...rows, ...survival(views[view].curves, row, d)] : rows;
  };

  /* How the mean predictor of a target comes about: at the means of the data, plus a share of each column. */
  const explain = (view, target, row, edited) => {
    const all = views[view].targets, own = all[kind === "softmax" ? 0 : target], means = baseValues(0), base = baseValues(row);
    const along = (list, at) => (kind === "softmax" ? sum(Array.from({ length: size }), (_, a) => basis[target * size + a] * list[at * size + a]) : list[at]);
    const coef = Array.from({ length: count }, (_, i) => sum(own.parts, (p) => p.weight * along(p.coef, i)));
    const predictor = (r) => sum(own.parts, (p) => p.weight * along(p.mean, r));
    const each = coef.map((b, i) => b * (edited[i] - means[i]));
    const start = predictor(0), others = predictor(row) - start - sum(coef, (b, i) => b * (base[i] - means[i]));
    return { start, others, each, total: start + others + sum(each, (share) => share) };
  };

  return { views: views.map(({ name }) => name), baseValues, predict, explain };
};
