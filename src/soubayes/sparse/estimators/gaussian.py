"""The part that normal means and linear regression share: from designs to fitted attributes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.choice.mixture import Component, Mixture
from soubayes.sparse.designs.base import LeastSquares
from soubayes.sparse.designs.standardise import check_units
from soubayes.sparse.estimators.base import (
    PathPoints,
    SparseEstimator,
    check_choice,
    check_confidence_coef,
    check_confidences,
    check_positive,
    chosen_row,
    warn_unconverged,
)
from soubayes.sparse.estimators.blocks import FeatureBlock, sources
from soubayes.sparse.likelihoods.gaussian import NoisePrior
from soubayes.sparse.posterior import LowRankPosterior, Posterior
from soubayes.sparse.scales import Groups, make_prior
from soubayes.sparse.solvers import ordered
from soubayes.sparse.solvers.coordinate import solve_coordinate
from soubayes.sparse.solvers.least_squares_state import LeastSquaresFit, LeastSquaresSolution
from soubayes.sparse.solvers.objective import LeastSquaresModel
from soubayes.sparse.solvers.path import PathPoint, solve_path
from soubayes.sparse.solvers.threads import solver_threads

Array = np.ndarray

SPARSE = 1e-9  # gamma_tau of the path: every tau follows the data
NOISE_SHARE = 1e-6  # default noise_scale in units of var(y): weaker than any data


class TargetUnits(NamedTuple):
    """Where the standardised units came from."""

    x_mean: Array
    x_scale: Array
    y_mean: Array  # one entry a target
    y_scale: Array
    plain: bool = True  # whether no unit had to be taken out before squaring

    def of(self, target: int) -> "TargetUnits":
        """Of one target."""
        one = slice(target, target + 1)
        return self._replace(y_mean=self.y_mean[one], y_scale=self.y_scale[one])


class TargetFit(NamedTuple):
    """What one target's fit contributes to the attributes."""

    solution: LeastSquaresSolution
    points: list[PathPoint]
    gamma: float


class GaussianEstimator(SparseEstimator):
    """Parameters to model, model to solution, solution to attributes in the user's units."""

    _scaled = True  # whether the prior of beta is multiplied by sigma^2

    def _blocks(self) -> list[FeatureBlock]:
        return []

    def _local_confidence(self) -> float:
        """gamma_tau of the path."""
        return SPARSE if self.confidence_local == "auto" else float(self.confidence_local)

    def _check_parameters(self) -> None:
        check_confidences(self, "confidence_global", "confidence_noise")
        if self.confidence_local != "auto":
            check_confidences(self, "confidence_local")
        check_confidence_coef(self.confidence_coef)
        make_prior(self.prior, 1.0)
        check_choice("solver", self.solver, ("path", "coordinate"))
        check_positive(self, "rate_local", "rate_global", "noise_shape", "tol", "max_iter")
        if self.noise_scale is not None:
            check_positive(self, "noise_scale")
        if getattr(self, "fit_intercept", False):
            check_positive(self, "intercept_variance")
            check_confidences(self, "confidence_intercept")

    def _model(
        self, p: int, n_blocks: list[FeatureBlock], y_scale: float
    ) -> tuple[LeastSquaresModel, Array]:
        """The model in standardised units, and which columns move along the path."""
        coef = 1.0 if self.confidence_coef == "auto" else float(self.confidence_coef)
        columns = sources(n_blocks, p, coef, self._local_confidence())
        scale = NOISE_SHARE if self.noise_scale is None else float(self.noise_scale) / y_scale**2
        intercept = getattr(self, "fit_intercept", False)
        model = LeastSquaresModel(
            confidence=columns.gamma,
            variance=columns.variance,
            local_confidence=columns.local,
            global_confidence=float(self.confidence_global),
            local_prior=make_prior(self.prior, float(self.rate_local)),
            global_prior=make_prior(
                getattr(self, "prior_global", None) or self.prior, float(self.rate_global)
            ),
            sources=columns.groups,
            groups=Groups.single(int(np.isnan(columns.variance).sum())),
            noise=NoisePrior(float(self.noise_shape), scale, float(self.confidence_noise)),
            scaled=self._scaled,
            intercept_variance=float(self.intercept_variance) if intercept else None,
            intercept_confidence=float(self.confidence_intercept) if intercept else 1.0,
        )
        return model, columns.free

    def _solve(self, designs: Sequence[LeastSquares], units: TargetUnits) -> list[TargetFit]:
        """Fit every target and set the attributes."""
        blocks = self._blocks()
        check_units(units.x_scale, units.y_scale)
        fits = []
        with solver_threads(int(min(designs[0].n, len(units.x_scale)))):
            for t, design in enumerate(designs):
                model, free = self._model(len(units.x_scale), blocks, float(units.y_scale[t]))
                fits.append(self._solve_one(design, model, free, t, len(designs)))
            self._set_attributes(designs, fits, units)
        self._check_numbers()
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
        return fits

    def _solve_one(
        self,
        design: LeastSquares,
        model: LeastSquaresModel,
        free: Array,
        target: int,
        n_targets: int,
    ) -> TargetFit:
        label = f"target {target}: " if n_targets > 1 else ""

        def report(text: str) -> None:
            if self.verbose:
                print(label + text, flush=True)

        limits: Any = {"tol": float(self.tol), "max_iter": int(self.max_iter), "report": report}
        least = np.minimum(model.confidence, 1.0)
        selects = bool(np.all((model.local_confidence < least / 2.0)[model.sparse]))
        self.solver_ = "path" if self.solver == "path" and selects else "coordinate"
        auto = self.confidence_coef == "auto"
        if self.solver_ == "coordinate":
            solution = solve_coordinate(design, model, **limits)
            return TargetFit(solution, [], 1.0 if auto else float(self.confidence_coef))
        wanted = None if auto else float(self.confidence_coef)
        points, chosen, solution = solve_path(design, model, free, wanted, **limits)
        gamma = 1.0 if chosen is None else points[chosen].gamma
        return TargetFit(solution, points, float(gamma if wanted is None else wanted))

    def _set_attributes(
        self, designs: Sequence[LeastSquares], fits: list[TargetFit], units: TargetUnits
    ) -> None:
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
        paths = [
            self._path(design, fit, units, t)
            for t, (design, fit) in enumerate(zip(designs, fits, strict=True))
        ]
        self._set_paths(paths)
        self.objective_ = self._histories(designs, fits, units)
        self._set_intercept(designs, fits, units)
        for name in ("candidates_", "out_of_fold_", "sparsity_"):
            self.__dict__.pop(name, None)
        self.mixtures_ = self._sparse_mixtures = [
            Mixture(self._components(design, fit.solution, units, t))
            for t, (design, fit) in enumerate(zip(designs, fits, strict=True))
        ]

    def _set_mixture_attributes(self) -> None:
        """Posterior means and sds of the mixtures."""
        p = len(self._x_mean)
        means = np.stack([mixture.mean for mixture in self.mixtures_])
        sds = np.stack([np.sqrt(mixture.variance) for mixture in self.mixtures_])
        coef, sd = means[:, :p], sds[:, :p]
        rows = np.append(-self._x_mean, np.ones(means.shape[1] - p))[None]
        spread = [float(mixture.spread(rows)[0]) for mixture in self.mixtures_]
        self.coef_, self.coef_sd_ = self._squeeze(list(coef)), self._squeeze(list(sd))
        if means.shape[1] > p:
            self.intercept_ = self._squeeze(list(means[:, p] - coef @ self._x_mean))
            self.intercept_sd_ = self._squeeze([np.sqrt(x) for x in spread])
        self.noise_variance_ = self._squeeze([mixture.noise for mixture in self.mixtures_])

    def _components(
        self, design: LeastSquares, s: LeastSquaresFit, units: TargetUnits, t: int
    ) -> tuple[Component, ...]:
        """A solution as a mixture of one, in the user's units."""
        scale = float(units.y_scale[t])
        q = _posterior(design, s, scale / units.x_scale)
        if getattr(self, "fit_intercept", False):
            spread = s.model.intercept_spread(design.n, s.noise.variance) * scale**2
            q = q.joined(float(units.y_mean[t]), spread)
        return (Component(q, s.noise.variance * scale**2, s.noise.shape),)

    def _describe(
        self, design: LeastSquares, fit: TargetFit, units: TargetUnits, t: int
    ) -> dict[str, Any]:
        s = fit.solution
        kappa = s.w * s.variance
        return {
            "selected_": s.selected,
            "shrinkage_": kappa,
            "effective_parameters_": float(np.sum(1.0 - kappa)),
            "noise_variance_": s.noise.variance * float(units.y_scale[t]) ** 2,
            "local_scale_": np.sqrt(s.model.each_tau(s.tau.ratio)),
            "global_scale_": float(np.sqrt(s.nu.ratio)),
            "kl_": s.value.kl,
            "confidence_coef_": fit.gamma,
        }

    def _histories(
        self, designs: Sequence[LeastSquares], fits: list[TargetFit], units: TargetUnits
    ) -> Any:
        """J in the user's units: a density of y changes by n log(scale)."""
        shifted = [
            fit.solution.history + design.n * math.log(scale)
            for design, fit, scale in zip(designs, fits, units.y_scale, strict=True)
        ]
        return shifted[0] if self._single else shifted

    def _set_intercept(
        self, designs: Sequence[LeastSquares], fits: list[TargetFit], units: TargetUnits
    ) -> None:
        self._x_mean = units.x_mean
        spreads, values, sds = [], [], []
        for t, (design, fit) in enumerate(zip(designs, fits, strict=True)):
            scale, s = float(units.y_scale[t]), fit.solution
            spread = s.model.intercept_spread(design.n, s.noise.variance) * scale**2
            spreads.append(spread)
            q = self.posteriors_[t]
            values.append(float(units.y_mean[t] - units.x_mean @ q.mean))
            sds.append(float(np.sqrt(spread + q.spread(units.x_mean[None])[0])))
        self._intercept_spread = np.array(spreads)
        self.intercept_, self.intercept_sd_ = self._squeeze(values), self._squeeze(sds)

    def _path(self, design: LeastSquares, fit: TargetFit, units: TargetUnits, t: int) -> PathPoints:
        """The path in the user's units; a coordinate fit is a path of one point."""
        scale = float(units.y_scale[t])
        s = fit.solution
        if not fit.points:
            coef, selected = s.coef[None], s.selected[None]
            sd = np.sqrt(s.model.confidence * s.noise.variance * s.variance)[None]
            rest = [[fit.gamma], [s.noise.variance], [s.value.value], [False], [2 * s.noise.shape]]
        else:
            coef = np.array([point.coef for point in fit.points])
            sd = np.array([point.sd for point in fit.points])
            selected = np.zeros(coef.shape, bool)
            for row, point in zip(selected, fit.points, strict=True):
                row[point.state.active] = True
            rest = [
                [point.gamma for point in fit.points],
                [point.state.noise for point in fit.points],
                [point.value for point in fit.points],
                [point.guarded for point in fit.points],
                [point.degrees for point in fit.points],
            ]
        coef, sd = coef * (scale / units.x_scale), sd * (scale / units.x_scale)
        gamma, noise, value, guarded, degrees = map(np.array, rest)
        points = {
            "gamma": gamma,
            "chosen": chosen_row(gamma, fit.gamma),
            "n_selected": selected.sum(axis=1),
            "noise_variance": noise * scale**2,
            "value": value + design.n * math.log(scale),
            "guarded": guarded,
            "degrees": degrees,
            "intercept": units.y_mean[t] - coef @ units.x_mean,
        }
        return PathPoints(points, coef, np.where(selected, sd, np.nan))

    def _degrees_of_freedom(self) -> Array:
        return 2.0 * self._noise_shape


def _posterior(design: LeastSquares, s: LeastSquaresFit, scale: Array) -> Posterior:
    """q(beta) in the user's units."""
    v, gamma = s.noise.variance, s.model.confidence
    active = np.flatnonzero(s.selected)
    part, model, w = design.take(active), s.model.take(active), s.w[active]
    everything = np.ones(len(active), bool)
    if len(active) == len(s.w) and not ordered.mixed(model, everything):
        found = part.low_rank(w)
        if found is not None:
            inverse, X = found
            diagonal = gamma * v / w
            half = inverse @ (X * np.sqrt(gamma * v) / w)
            return LowRankPosterior(s.coef * scale, diagonal, half, inverse, scale)
    block = v * ordered.covariance(model, lambda own: part.take(own).inverse(w[own]))
    return Posterior(s.coef * scale, gamma * v * s.variance, active, block, scale)
