"use strict";

/* Distribution functions, to about 1e-13: incomplete gamma and beta functions by series and continued fractions. */
const Special = (() => {
  const LANCZOS = [
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ];
  const TINY = 1e-300, EPSILON = 1e-16;

  const logGamma = (x) => {
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    const t = x + 6.5;
    const sum = LANCZOS.reduce((total, c, k) => total + (k ? c / (x - 1 + k) : c), 0);
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
  };

  /* Lentz's method: the continued fraction b0 + a1/(b1 + a2/(b2 + ...)), of term(k) = [a_k, b_k]. */
  const fraction = (b0, term) => {
    let f = b0 || TINY, c = f, d = 0;
    for (let k = 1; k < 100000; k++) {
      const [a, b] = term(k);
      d = 1 / (b + a * d || TINY);
      c = b + a / c || TINY;
      f *= c * d;
      if (Math.abs(c * d - 1) < EPSILON) break;
    }
    return f;
  };

  /* P(a, x) and 1 - P(a, x), the distribution function of a gamma variable with shape a. */
  const gammaBoth = (a, x) => {
    if (x <= 0) return [0, 1];
    const front = Math.exp(a * Math.log(x) - x - logGamma(a));
    if (x < a + 1) {
      let term = 1 / a, sum = term;
      for (let k = 1; k < 100000 && term > EPSILON * sum; k++) sum += term *= x / (a + k);
      return [front * sum, 1 - front * sum];
    }
    const above = front / fraction(x + 1 - a, (k) => [k * (a - k), x + 2 * k + 1 - a]);
    return [1 - above, above];
  };

  /* The regularised incomplete beta function. */
  const beta = (x, a, b) => {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - beta(1 - x, b, a);
    const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
    const term = (k) => {
      const m = Math.floor(k / 2);
      const up = k % 2 ? -(a + m) * (a + b + m) : m * (b - m);
      return [(up * x) / ((a + k - 1) * (a + k)), 1];
    };
    return front / a / fraction(1, term);
  };

  const normal = (x) => {
    const [below, above] = gammaBoth(0.5, (x * x) / 2);
    return x < 0 ? above / 2 : 0.5 + below / 2;
  };
  const student = (x, degrees) => {
    const tail = beta(degrees / (degrees + x * x), degrees / 2, 0.5) / 2;
    return x < 0 ? tail : 1 - tail;
  };
  const poisson = (k, mean) => (k < 0 ? 0 : gammaBoth(k + 1, mean)[1]);
  const negativeBinomial = (k, mean, size) => (k < 0 ? 0 : beta(size / (size + mean), size, k + 1));
  const gamma = (y, shape, mean) => gammaBoth(shape, (shape * y) / mean)[0];

  /* The least x with below(x) >= level, by bisection between two ends that are moved apart first. */
  const quantile = (below, level, centre, width, whole = false, lowest = -Infinity) => {
    let low = centre - width, high = centre + width;
    for (let k = 0; k < 200 && low > lowest && below(low) >= level; k++) low -= width *= 2;
    for (let k = 0; k < 200 && below(high) < level; k++) high += width *= 2;
    low = Math.max(low, lowest - (whole ? 1 : 0));
    if (whole) [low, high] = [Math.floor(low), Math.ceil(high)];
    while (high - low > (whole ? 1 : 1e-13 * (Math.abs(low) + Math.abs(high)))) {
      const middle = whole ? Math.floor((low + high) / 2) : (low + high) / 2;
      if (middle === low || middle === high) break;
      if (below(middle) < level) low = middle;
      else high = middle;
    }
    return high;
  };

  return { normal, student, poisson, negativeBinomial, gamma, quantile };
})();
