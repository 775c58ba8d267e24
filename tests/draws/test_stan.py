"""What is read of a Stan program: the order of its parameters, and the lines of its log priors."""

import pytest

from soubayes import stan_log_priors
from soubayes.draws.stan import StanProgram

DECLARED = """
data { int J; }
transformed data { real x = 1; }
parameters {
  real<lower=0, upper=a[1]> tau; // tau, not mu
  /* vector[3] gone; */
  array[2] real mu;
  vector<lower=0>[J] z;
  real old[3];
  cholesky_factor_corr[J] L;
}
transformed parameters { vector[J] theta = tau * z; }
model { z ~ normal(0, 1); }
"""
SCHOOLS = """
data { int J; vector[J] y; vector[J] sigma; int n; array[n] int k; }
parameters { vector[J] theta; real mu; real<lower=0> tau; real<lower=0> phi; real flat; }
transformed parameters { real<lower=0> spread = tau * 2; }
model {
  vector[J] centre;
  centre = rep_vector(mu, J);
  for (j in 1:J) {
    theta[j] ~ normal(centre[j], spread);
  }
  mu ~ normal(0, 5) T[-10, ];
  target += cauchy_lpdf(tau | 0, 5);
  phi ~ gamma(2, 1);
  y ~ normal(theta, sigma);
  k ~ neg_binomial_2(exp(mu), phi);
}
"""
BRMS = """
data { int N; vector[N] Y; matrix[N, 2] Xc; int prior_only; vector[N] Z_1_1; array[N] int J_1; }
parameters {
  vector[2] b; real Intercept; real<lower=0> sigma; vector<lower=0>[1] sd_1; array[1] vector[9] z_1;
}
transformed parameters {
  vector[9] r_1_1;
  real lprior = 0;
  r_1_1 = (sd_1[1] * (z_1[1]));
  lprior += normal_lpdf(b | 0, 1);
  lprior += student_t_lpdf(Intercept | 3, 0.1, 2.5);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5)
    - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sd_1 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept;
    for (n in 1:N) { mu[n] += r_1_1[J_1[n]] * Z_1_1[n]; }
    target += normal_id_glm_lpdf(Y | Xc, mu, b, sigma);
  }
  target += lprior;
  target += std_normal_lpdf(z_1[1]);
}
"""


def test_the_parameters_are_read_as_they_are_declared():
    program = StanProgram(DECLARED)
    assert program.names() == program.order() == ["tau", "mu", "z", "old", "L"]


def test_a_parameter_comes_after_its_parents():
    program = StanProgram(SCHOOLS)
    assert program.parents()["theta"] == {"mu", "tau"}
    assert program.parents()["mu"] == program.parents()["flat"] == set()
    assert program.order() == ["mu", "tau", "theta", "phi", "flat"]


def test_every_statement_of_the_model_goes_to_its_parameter_or_to_the_likelihood():
    lines = [line.strip() for line in stan_log_priors(SCHOOLS).split("\n")]
    assert "lp_theta += normal_lpdf(theta[j] | centre[j], spread);" in lines
    assert "lp_mu += normal_lpdf(mu | 0, 5) - normal_lccdf(-10 | 0, 5);" in lines
    assert "lp_tau += cauchy_lpdf(tau | 0, 5);" in lines
    assert "lp_phi += gamma_lpdf(phi | 2, 1);" in lines
    assert "log_lik += normal_lpdf(y | theta, sigma);" in lines
    assert "log_lik += neg_binomial_2_lpmf(k | exp(mu), phi);" in lines
    assert "real lp_flat = 0;" in lines
    assert not [line for line in lines if "~" in line or "target" in line]
    assert "\n".join(lines).count("{") == "\n".join(lines).count("}")


def test_a_program_of_brms():
    block = stan_log_priors(BRMS)
    lines = [line.strip() for line in block.split("\n")]
    assert "lp_b += normal_lpdf(b | 0, 1);" in lines
    assert "lp_z_1 += std_normal_lpdf(z_1[1]);" in lines
    assert "log_lik += normal_id_glm_lpdf(Y | Xc, mu, b, sigma);" in lines
    assert "lp_sigma += student_t_lpdf(sigma | 3, 0, 2.5)" in block
    assert "lprior" not in block
    assert StanProgram(BRMS).order() == ["b", "Intercept", "sigma", "sd_1", "z_1"]


def test_half_of_the_real_line_has_its_constant():
    program = "parameters { real<lower=0> s; } model { s ~ normal(0, 2); }"
    assert "lp_s += normal_lpdf(s | 0, 2) - normal_lccdf(0 | 0, 2);" in stan_log_priors(program)


def test_what_is_no_program_and_what_has_no_order():
    with pytest.raises(ValueError, match="has no block 'parameters'"):
        stan_log_priors("model { }")
    circle = "parameters { real a; real b; } model { a ~ normal(b, 1); b ~ normal(a, 1); }"
    with pytest.raises(ValueError, match=r"\['a', 'b'\] in the Stan program depend on each other"):
        StanProgram(circle).order()
