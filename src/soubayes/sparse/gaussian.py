"""The part that normal means and linear regression share: from designs to fitted attributes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular

from soubayes.results import Table
from soubayes.sparse.base import (
    SparseEstimator,
    check_choice,
    check_confidence_coef,
    check_confidences,
    check_positive,
    warn_unconverged,
)
from soubayes.sparse.blocks import FeatureBlock, sources
from soubayes.sparse.coordinate import solve_coordinate
from soubayes.sparse.designs import Design, Wide
from soubayes.sparse.objective import Model, intercept_spread, source_covariance
from soubayes.sparse.path import Point, Solution, solve_path
from soubayes.sparse.posterior import LowRankPosterior, Posterior
from soubayes.sparse.scales import make_prior
from soubayes.sparse.threads import solver_threads
from soubayes.sparse.triangles import cholesky

Array = np.ndarray

NOISE_SHARE = 1e-6  # default noise_scale in units of var(y): weaker than any data


class Units(NamedTuple):
    """Where the standardised units came from."""

    x_mean: Array
    x_scale: Array
    y_mean: Array  # one entry a target
    y_scale: Array


class _Target(NamedTuple):
    """What one target's fit contributes to the attributes."""

    solution: Solution
    points: list[Point]
    gamma: float


class GaussianEstimator(SparseEstimator):
    """Parameters to model, model to solution, solution to attributes in the user's units."""

    _scaled = True  # whether the prior of beta is multiplied by sigma^2

    def _blocks(self) -> list[FeatureBlock]:
        return []

    def _check_parameters(self) -> None:
        check_confidences(self, "confidence_local", "confidence_global", "confidence_noise")
        check_confidence_coef(self.confidence_coef)
        check_choice("prior", self.prior, ("exponential", "horseshoe"))
        check_choice("solver", self.solver, ("path", "coordinate"))
        check_positive(self, "rate_local", "rate_global", "noise_shape", "tol", "max_iter")
        if self.noise_scale is not None:
            check_positive(self, "noise_scale")
        if getattr(self, "fit_intercept", False):
            check_positive(self, "intercept_variance")
            check_confidences(self, "confidence_intercept")

    def _model(self, p: int, n_blocks: list[FeatureBlock], y_scale: float) -> tuple[Model, Array]:
        """The model in standardised units, and which columns move along the path."""
        coef = 1.0 if self.confidence_coef == "auto" else float(self.confidence_coef)
        columns = sources(n_blocks, p, coef, float(self.confidence_local))
        scale = NOISE_SHARE if self.noise_scale is None else float(self.noise_scale) / y_scale**2
        intercept = getattr(self, "fit_intercept", False)
        model = Model(
            gamma=columns.gamma,
            local=columns.local,
            top=float(self.confidence_global),
            noise=float(self.confidence_noise),
            local_prior=make_prior(self.prior, float(self.rate_local)),
            top_prior=make_prior(self.prior, float(self.rate_global)),
            noise_shape=float(self.noise_shape),
            noise_scale=scale,
            variance=columns.variance,
            groups=columns.groups,
            scaled=self._scaled,
            intercept_variance=float(self.intercept_variance) if intercept else None,
            intercept=float(self.confidence_intercept) if intercept else 1.0,
        )
        return model, columns.free

    def _solve(self, designs: Sequence[Design], units: Units) -> Self:
        """Fit every target and set the attributes."""
        blocks = self._blocks()
        fits = []
        with solver_threads(int(min(designs[0].n, len(units.x_scale)))):
            for t, design in enumerate(designs):
                model, free = self._model(len(units.x_scale), blocks, float(units.y_scale[t]))
                fits.append(self._solve_one(design, model, free, t, len(designs)))
            self._set_attributes(designs, fits, units)
        if not self.converged_:
            if self.solver_ == "coordinate":
                what = f"J was still falling by more than tol={self.tol} nats a sweep"
                advice = (
                    "Algorithm 1 creeps when confidence_local is small: raise max_iter or tol, or "
                    "use solver='path'."
                )
            else:
                what = f"the path did not converge within max_iter={self.max_iter} steps"
                advice = "Raise max_iter or tol."
            warn_unconverged(self, what, advice)
        return self

    def _solve_one(
        self, design: Design, model: Model, free: Array, target: int, n_targets: int
    ) -> _Target:
        label = f"target {target}: " if n_targets > 1 else ""

        def report(text: str) -> None:
            if self.verbose:
                print(label + text, flush=True)

        limits: Any = {"tol": float(self.tol), "max_iter": int(self.max_iter), "report": report}
        sparse = model.sparse
        selects = bool(np.all(model.local[sparse] < np.minimum(model.gamma[sparse], 1.0) / 2.0))
        self.solver_ = "path" if self.solver == "path" and selects else "coordinate"
        auto = self.confidence_coef == "auto"
        if self.solver_ == "coordinate":
            solution = solve_coordinate(design, model, **limits)
            return _Target(solution, [], 1.0 if auto else float(self.confidence_coef))
        wanted = None if auto else float(self.confidence_coef)
        points, chosen, solution = solve_path(design, model, free, wanted, **limits)
        gamma = 1.0 if chosen is None else points[chosen].gamma
        return _Target(solution, points, float(gamma if wanted is None else wanted))

    def _set_attributes(self, designs: Sequence[Design], fits: list[_Target], units: Units) -> None:
        each = [
            self._describe(design, fit, units, t)
            for t, (design, fit) in enumerate(zip(designs, fits, strict=True))
        ]
        for name in each[0]:
            setattr(self, name, self._squeeze([values[name] for values in each]))
        self.posteriors_ = [
            _posterior(design, fit.solution, units.y_scale[t] / units.x_scale)
            for t, (design, fit) in enumerate(zip(designs, fits, strict=True))
        ]
        self._coef_units = units.y_scale[:, None] / units.x_scale  # of a standardised coefficient
        self.coef_ = self._squeeze([q.mean for q in self.posteriors_])
        self.coef_sd_ = self._squeeze([q.sd for q in self.posteriors_])
        self._noise_shape = np.array([fit.solution.noise.shape for fit in fits])
        self._noise_value = np.array(
            [
                fit.solution.noise.variance * scale**2
                for fit, scale in zip(fits, units.y_scale, strict=True)
            ]
        )
        self.n_iter_ = max(fit.solution.n_iter for fit in fits)
        self.converged_ = all(fit.solution.converged for fit in fits)
        tables = [
            self._table(design, fit, units, t)
            for t, (design, fit) in enumerate(zip(designs, fits, strict=True))
        ]
        self.path_ = tables[0] if self._single else tables
        self.objective_ = self._histories(designs, fits, units)
        self._set_intercept(designs, fits, units)

    def _describe(self, design: Design, fit: _Target, units: Units, t: int) -> dict[str, Any]:
        s = fit.solution
        local = np.full(len(s.w), np.nan)
        local[s.model.sparse] = np.sqrt(s.tau.ratio)
        kappa = s.w * s.variance
        return {
            "selected_": s.selected,
            "shrinkage_": kappa,
            "effective_parameters_": float(np.sum(1.0 - kappa)),
            "noise_variance_": s.noise.variance * float(units.y_scale[t]) ** 2,
            "local_scale_": local,
            "global_scale_": float(np.sqrt(s.nu.ratio)),
            "kl_": s.value.kl,
            "confidence_coef_": fit.gamma,
        }

    def _histories(self, designs: Sequence[Design], fits: list[_Target], units: Units) -> Any:
        """J in the user's units: a density of y changes by n log(scale)."""
        shifted = [
            fit.solution.history + design.n * math.log(scale)
            for design, fit, scale in zip(designs, fits, units.y_scale, strict=True)
        ]
        return shifted[0] if self._single else shifted

    def _set_intercept(self, designs: Sequence[Design], fits: list[_Target], units: Units) -> None:
        self._x_mean = units.x_mean
        spreads, values, sds = [], [], []
        for t, (design, fit) in enumerate(zip(designs, fits, strict=True)):
            scale, s = float(units.y_scale[t]), fit.solution
            spread = intercept_spread(s.model, design.n, s.noise.variance) * scale**2
            spreads.append(spread)
            q = self.posteriors_[t]
            values.append(float(units.y_mean[t] - units.x_mean @ q.mean))
            sds.append(float(np.sqrt(spread + q.spread(units.x_mean[None])[0])))
        self._intercept_spread = np.array(spreads)
        self.intercept_, self.intercept_sd_ = self._squeeze(values), self._squeeze(sds)

    def _table(self, design: Design, fit: _Target, units: Units, t: int) -> Table:
        """The path in the user's units; a coordinate fit is a path of one point."""
        scale = float(units.y_scale[t])
        s = fit.solution
        if not fit.points:
            coef, selected = s.coef[None], s.selected[None]
            rest = [[fit.gamma], [s.noise.variance], [s.value.value], [False]]
        else:
            coef = np.array([point.coef for point in fit.points])
            selected = np.zeros(coef.shape, bool)
            for row, point in zip(selected, fit.points, strict=True):
                row[point.state.active] = True
            rest = [
                [point.gamma for point in fit.points],
                [point.state.noise for point in fit.points],
                [point.value for point in fit.points],
                [point.guarded for point in fit.points],
            ]
        coef = coef * (scale / units.x_scale)
        gamma, noise, value, guarded = map(np.array, rest)
        return Table(
            gamma=gamma,
            n_selected=selected.sum(axis=1),
            noise_variance=noise * scale**2,
            value=value + design.n * math.log(scale),
            guarded=guarded,
            intercept=units.y_mean[t] - coef @ units.x_mean,
            selected=selected,
            coef=coef,
        )

    def _degrees_of_freedom(self) -> Array:
        return 2.0 * self._noise_shape

    def _draws(self, n: int, rng: np.random.Generator) -> dict[str, list[Array]]:
        draws = super()._draws(n, rng)
        draws["noise_variance"] = [
            shape * value / rng.gamma(shape, size=n)
            for shape, value in zip(self._noise_shape, self._noise_value, strict=True)
        ]
        if getattr(self, "fit_intercept", False):
            draws["intercept"] = [
                q.mean @ self._x_mean
                + np.atleast_1d(self.intercept_)[t]
                + rng.standard_normal(n) * np.sqrt(self._intercept_spread[t])
                - draws["coef"][t] @ self._x_mean
                for t, q in enumerate(self.posteriors_)
            ]
        return draws


def _posterior(design: Design, s: Solution, scale: Array) -> Posterior:
    """q(beta) in the user's units."""
    v = s.noise.variance
    variance = s.model.gamma * v * s.variance * scale**2
    active = np.flatnonzero(s.selected)
    part, model, w = design.take(active), s.model.take(active), s.w[active]
    uniform = len(set(model.gamma.tolist())) <= 1
    if isinstance(part, Wide) and uniform and len(active) == len(s.w):
        diagonal = model.gamma * v / w * scale**2
        lower = cholesky(part.columns.gram(w), 1.0)
        X = part.X / (scale * np.sqrt(model.gamma * v))
        half = solve_triangular(lower, X * diagonal, lower=True, check_finite=False)
        return LowRankPosterior(s.coef * scale, diagonal, half, lower)
    block = v * source_covariance(part, model, w) * np.outer(scale[active], scale[active])
    return Posterior(s.coef * scale, variance, active, block)
