"""The fast solver of row-wise models: J and fixed points of Algorithm 1, in seconds.

Each outer step makes one pass over the rows for H (twice the slope of the expected loss in the
covariance) and W (its curvature in the mean), then minimises J's quadratic model over theta =
log d, the log prior precisions, with mean, covariance and scales profiled out (`improve`). If the
true J rises or falls slowly, all of q moves along its gradient instead (`joint.py`). Columns whose
precision runs away are dropped, and at convergence re-admitted where q_j^2 > gamma_b s_j
(`dropped.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.designs.linalg import cholesky, invert, invert_triangle
from soubayes.sparse.dial import rises
from soubayes.sparse.rows.dropped import FAR, check_dropped, own_precision, runs_away
from soubayes.sparse.rows.joint import descend_jointly
from soubayes.sparse.rows.passes import Pass, RowProblem
from soubayes.sparse.rows.state import (
    RowFit,
    RowModel,
    RowState,
    apart,
    dropped_terms,
    make_state,
    prior_value,
    tau_precision,
)
from soubayes.sparse.scales.base import Scale

Array = np.ndarray

FLAT_NATS = 0.01  # promised by a Newton step where a solver may end
_PRECISE = 1e-6  # from this tolerance on a slow fit ends with all digits
MANY_ROWS, MANY_FOR_EACH = 5_000, 50  # rows, and rows for each column, from which passes are saved
JOINT_STEPS = 40  # steps of `descend_jointly`, and of Newton's method that make it worth while


def solve(
    problem: RowProblem,
    model: RowModel,
    start: RowState,
    *,
    max_iter: int = 200,
    tol: float = 1e-7,
    readmit: bool = True,
    slow: bool = False,
    known: Pass | None = None,
    settle: bool = True,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> RowFit:
    """Minimise J from ``start`` until a step lowers it by less than ``tol`` times its size.

    J never rises. A dropped column's own share of J, of order gamma_tau, enters the history at
    its latest value. Without ``readmit`` dropped columns stay where they are.
    ``slow`` data are those where all of q had to move at once.

    Passes are saved where rows are many, and many for each column, so the loss is almost quadratic:
    the first step is made with the pass ``known`` of these means at another confidence, a step that
    promises less than ``tol`` is not tried, and without ``settle`` dropped columns that stay are
    not brought up to date.
    """
    state, active_rows = start, ActiveRows(problem)
    n, p = problem.design.n_rows, problem.n_columns
    many = n >= max(MANY_ROWS, MANY_FOR_EACH * p)
    if known is not None and many:
        # the pass at these means holds up to the change of confidence
        enough = 0.1 * tol * abs(known.loss)
        jump = not problem.likelihood.majorises
        state = improve(model, state, known, known.curvature, enough, jump)
    data, value = active_rows.evaluate(model, state)
    history, converged = [value], False
    # before the last digits: columns that return would move all others again
    coarse = max(tol, 1e-5) if readmit else tol
    first = 0  # of the steps on these columns
    ended = sharp = False  # whether all of q moved at once and came to rest here, with all digits
    for iteration in range(max_iter):
        here = _Step(state, data, value, ended)
        promising = not many or _promised(model, state, data) > tol * abs(value)
        step = _descend(active_rows, model, here, tol) if promising else None
        if step is None and not _is_flat(model, state, data, tol * abs(value)):
            step = _mean_step(active_rows, model, here)
        if step is None and ended and slow and tol < _PRECISE and not sharp:
            step = here  # only its last digits are missing
        if step is not None:
            if not problem.likelihood.majorises:
                last = slow and value - step.value <= tol * abs(value)
                sharp = last and tol < _PRECISE
                far = last or _is_slow([*history[first:], step.value], tol)
                slow = slow or far
                if sharp or (far and not step.ended):
                    step = _jointly(active_rows, model, step, tol, sharp)
            state, data, value, ended = step
            history.append(value)
        report(iteration, value, len(state.active))
        if step is not None and history[-2] - value > coarse * abs(value):
            continue
        settled = step is None or history[-2] - value <= tol * abs(value)
        if settled and many and not (readmit or settle):
            converged = _is_flat(model, state, data, tol * abs(value))
            break
        # dropped columns are looked at early, so they return before the last digits
        check = check_dropped(problem, model, state, data, value, readmit)
        history = [past + check.shift for past in history]
        state, data, value = check.state, check.data, check.value
        if check.returned:
            first, ended, sharp = len(history), False, False
            history.append(value)
        elif settled:
            # J was far off where dropped columns had shares of another confidence: look again
            converged = _is_flat(model, state, data, tol * abs(value))
            if converged or step is None:
                break
        coarse = coarse if check.waiting else tol
    return RowFit(state, data, history, converged, slow=slow)


def _is_flat(model: RowModel, state: RowState, data: Pass, enough: float) -> bool:
    """Whether Newton's step of the mean would lower J by little: no step is not yet a minimum."""
    pull = model.confidence[state.active] * state.precision[state.active]
    slope = data.score - pull * state.mean
    if not len(slope):
        return True
    # half of slope'(W + gamma D)^-1 slope is what a Newton step lowers J by
    step = lapack.dposv(data.curvature + np.diag(pull), slope)[1]
    return bool(0.5 * slope @ step <= max(FLAT_NATS, 100.0 * enough))


def _promised(model: RowModel, state: RowState, data: Pass) -> float:
    """By how much a Newton step would lower the quadratic model of J."""
    quadratic = _quadratic(model, state, data, data.curvature)
    point = _profile(model, quadratic, np.log(state.precision), (state.local, state.top))
    off = point.mean - state.mean
    pull = data.curvature @ off + point.w * off
    return _newton_move(model, quadratic, point, False)[1] + 0.5 * float(off @ pull)


class ActiveRows:
    """The active columns of a problem, taken once while they stay the same."""

    def __init__(self, problem: RowProblem) -> None:
        self.problem, self._active, self._taken = problem, np.full(1, -1), problem

    def evaluate(self, model: RowModel, state: RowState) -> tuple[Pass, float]:
        """A pass over the rows at this state, and J."""
        if not np.array_equal(state.active, self._active):
            self._active, self._taken = state.active, self.problem.take(state.active)
        data = self._taken.sweep(state.mean, state.root)
        return data, data.loss + prior_value(model, state)


class _Step(NamedTuple):
    """A state after a step, with its pass and J."""

    state: RowState
    data: Pass
    value: float
    ended: bool = False  # it is where a `_jointly` came to rest


def _is_slow(history: list[float], tol: float) -> bool:
    """Whether J falls so slowly that more than ``JOINT_STEPS`` further steps would be needed."""
    if len(history) < 4:
        return False
    before, gain = history[-4] - history[-3], history[-2] - history[-1]
    enough = tol * abs(history[-1])
    # geometric falls from `before` to `gain` in two steps reach `enough` after JOINT_STEPS more
    return gain > enough and gain > before * (enough / gain) ** (2.0 / JOINT_STEPS)


def _jointly(
    part: ActiveRows, model: RowModel, step: _Step, tol: float, precise: bool = False
) -> _Step:
    """The step, or a lower one to where all of q goes from there when it moves at once."""
    enough = 0.1 * tol * abs(step.value)
    trial, ended = descend_jointly(part.problem, model, step.state, enough, JOINT_STEPS, precise)
    data, value = part.evaluate(model, trial)
    # J may be far too large while dropped columns wait, and a gain of few nats far from the end
    little = 0.1 * FLAT_NATS
    ended = (ended and enough < little) or step.value - value < min(enough, little)
    # the slope is that of exact averages, J that of a rule: where it is 0 all ways end alike
    close = precise and value <= step.value + tol * abs(step.value)
    if value < step.value or close:
        return _Step(trial, data, min(value, step.value), ended)
    return step._replace(ended=True)


def _descend(part: ActiveRows, model: RowModel, here: _Step, tol: float) -> _Step | None:
    """One outer step that lowers J, or None when rounding allows none.

    Where H majorises the loss, W is blended with it if the step raises J: at blend 1 the quadratic
    model lies above J, which cannot rise. Otherwise all of q moves along the gradient of J, unless
    it came to rest ``here``.
    """
    state, data, value, ended = here
    majorises = part.problem.likelihood.majorises
    for blend in (0.0, 0.5, 1.0) if majorises else (0.0,):
        W = data.curvature
        if blend:
            W = (1.0 - blend) * W + blend * data.information
        # the quadratic model is minimised to a tenth of what J itself is asked for
        trial = improve(model, state, data, W, enough=0.1 * tol * abs(value), jump=not majorises)
        new_data, new_value = part.evaluate(model, trial)
        if not rises(new_value, value):
            return _Step(trial, new_data, new_value)
    if majorises or ended or not len(state.active):
        return None
    step = _jointly(part, model, here, tol)
    return step if step.value < value else None


def _mean_step(part: ActiveRows, model: RowModel, here: _Step) -> _Step | None:
    """A Newton step of the mean alone, where the model of all of q does not lead down.

    The loss is convex in the mean, so a short enough step lowers J at held covariances.
    """
    state, data = here.state, here.data
    pull = model.confidence[state.active] * state.precision[state.active]
    step = lapack.dposv(data.curvature + np.diag(pull), data.score - pull * state.mean)[1]
    for halvings in range(8):
        trial = state._replace(mean=state.mean + 0.5**halvings * step)
        new_data, new_value = part.evaluate(model, trial)
        if new_value < here.value:
            return _Step(trial, new_data, new_value)
    return None


class _Quadratic(NamedTuple):
    """J's model on some columns: H (the intercept apart), W and the mean's linear term."""

    columns: Array
    H: Array
    W: Array
    linear: Array
    alike: bool  # W is H but for the intercept

    def keep(self, stay: Array) -> "_Quadratic":
        square, columns, linear = np.ix_(stay, stay), self.columns[stay], self.linear[stay]
        return _Quadratic(columns, self.H[square], self.W[square], linear, self.alike)

    def inverses(self, w: Array, gamma: Array, intercept: bool) -> tuple[Array, Array, float]:
        """(H + diag(w))^-1, (W + diag(w))^-1 and half the log determinant of the first.

        Its terms are weighted by ``gamma``, which differs at most in the intercept.
        """
        if not self.alike:
            factor = cholesky(self.H, w)
            log_det = float(gamma @ np.log(np.diag(factor)))
            return invert(factor), invert(cholesky(self.W, w)), log_det
        factor = cholesky(self.W, w)
        half = np.log(np.diag(factor))
        if not intercept:
            B = invert(factor)
            return B, B, float(gamma @ half)
        # the intercept is last: the factor without it, then the inverse with it
        root_square, total = float(factor[-1, -1]) ** 2, float(self.W[-1, -1] + w[-1])
        C, B = np.zeros((2, len(w), len(w)))
        inner = invert(np.asfortranarray(factor[:-1, :-1]))
        way = np.append(inner @ self.W[:-1, -1], -1.0)
        C[:-1, :-1] = B[:-1, :-1] = inner
        C[-1, -1] = 1.0 / total
        B += np.outer(way, way / root_square)
        return C, B, float(gamma[:-1] @ half[:-1] + 0.5 * gamma[-1] * np.log(total))


class _Point(NamedTuple):
    """The model at one theta = log d, with mean, covariance and scales profiled out."""

    theta: Array  # (p,) of all columns, dropped ones too
    value: float
    C: Array  # (H + gamma D)^-1
    B: Array  # (W + gamma D)^-1
    mean: Array
    variance: Array  # diagonal of S
    w: Array  # gamma d
    local: Scale
    top: Scale


def improve(
    model: RowModel,
    state: RowState,
    data: Pass,
    W: Array,
    enough: float,
    jump: bool = False,
) -> RowState:
    """Damped Newton steps of at most 3 in theta = log d on

        gamma_b/2 log|H + gamma_b D| - 1/2 g'(W + gamma_b D)^-1 g + (J of the scales at d),

    dropping columns on the way, until a step gains less than ``enough``. With ``jump`` columns that
    were taken back far out go to their own stationary point, where Newton would hardly move them.
    """
    quadratic = _quadratic(model, state, data, W)
    rest, held = state.rest.copy(), (state.local, state.top)
    point = _profile(model, quadratic, np.log(state.precision), held)
    for _ in range(10):
        move, gain = _newton_move(model, quadratic, point, jump)
        if not gain > enough:
            break
        point = _line_search(model, quadratic, point, move)
        columns = quadratic.columns
        s, q = _leave_one_out(point, model.confidence[columns])
        most = s if model.groups.alone else model.take(columns).group_most(s)
        # a column is dropped while its w still grows: beyond FAR s its mean and J have settled
        gone = runs_away(model, columns, s, q) & (point.w > FAR * most)
        if gone.any():
            j, s, q = columns[gone], s[gone], q[gone]
            d = own_precision(model, point.local, point.top, j, s, q)
            theta = point.theta.copy()
            theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, q, d)
            quadratic = quadratic.keep(~gone)
            point = _profile(model, quadratic, theta, held)
    precision = model.precisions(np.exp(point.theta))
    near = point.local, point.top
    return make_state(model, quadratic.columns, point.mean, quadratic.H, precision, rest, near)


def _quadratic(model: RowModel, state: RowState, data: Pass, W: Array) -> _Quadratic:
    """J's model around a state."""
    gamma = model.confidence[state.active]
    # with one gamma and W = H one factor serves mean and covariance
    one = len(set(gamma[: len(gamma) - model.intercept].tolist())) <= 1
    alike = one and np.array_equal(W, data.information)
    # the loss about the mean is -linear'm + m'Wm/2 + constant
    linear = data.score + W @ state.mean
    return _Quadratic(state.active, apart(model, data.information), W, linear, alike)


def _profile(
    model: RowModel, quadratic: _Quadratic, theta: Array, held: tuple[Scale, Scale]
) -> _Point:
    gamma = model.confidence[quadratic.columns]
    w = gamma * np.exp(theta[quadratic.columns])
    C, B, log_det = quadratic.inverses(w, gamma, model.intercept)
    # S = gamma (H + gamma D)^-1 with one gamma
    variance = gamma * np.diag(C)
    if not quadratic.alike and len(set(gamma[: len(gamma) - model.intercept].tolist())) > 1:
        # sources of unequal confidence
        root = invert_triangle(cholesky(quadratic.H, w)).T * np.sqrt(gamma)
        variance = np.einsum("ij,ij->i", root, root)
    mean = B @ quadratic.linear
    local, top = model.scales.balance(tau_precision(model, np.exp(theta)), held)
    # J with mean and covariance at their best; log_det is half of log|H + gamma D|
    value = log_det - quadratic.linear @ mean / 2.0 + model.scales.value(local, top)
    return _Point(theta, float(value), C, B, mean, variance, w, local, top)


def _newton_move(
    model: RowModel, quadratic: _Quadratic, point: _Point, jump: bool
) -> tuple[Array, float]:
    """The step in theta of the sparse columns, at most 3 each, and the gain it promises."""
    sparse = model.sparse[quadratic.columns]
    columns = quadratic.columns[sparse]
    if not len(columns):
        return np.zeros(0), 0.0
    C, B = point.C[np.ix_(sparse, sparse)], point.B[np.ix_(sparse, sparse)]
    gamma, w, m = model.confidence[columns], point.w[sparse], point.mean[sparse]
    # J of the scales at d with nu profiled out; the shapes, which vary little, are held
    scales, here = model.scales, model.taus_of(columns)
    one, two = scales.local_prior.kl_slope(point.local)
    all_two = scales.local_confidence * two
    one, two = (scales.local_confidence * one)[here], all_two[here]
    nu_two = scales.global_confidence * scales.global_prior.kl_slope(point.top)[1]
    # dJ/dtheta_j = [w_j E[beta_j^2] - gamma_b]/2 minus the slope of the KL of tau, for mean and
    # covariance are at their best: the envelope theorem leaves only the explicit dependence
    half = w * (point.variance[sparse] + m * m) / 2.0
    slope = half - gamma / 2.0
    hessian = -(
        np.outer(np.sqrt(gamma) * w, np.sqrt(gamma) * w) / 2.0 * C * C + np.outer(w * m, w * m) * B
    )
    hessian[np.diag_indices_from(hessian)] += half
    if not model.groups.alone:
        groups = model.take(columns).groups
        sums = np.eye(groups.n_groups)[groups.number]
        hessian, slope, half = sums.T @ hessian @ sums, groups.total(slope), groups.total(half)
    slope = slope - one
    # nu profiled out: a Schur complement of rank one
    hessian -= np.outer(two, two) / (all_two.sum() + nu_two)
    hessian[np.diag_indices_from(hessian)] += two
    # J is not convex in theta: more of the positive diagonal until the Hessian is
    damping = 0.0
    while True:
        factor, info = lapack.dpotrf(hessian + np.diag(damping * (half + two)), lower=1)
        if info == 0:
            break
        damping = max(2.0 * damping, 0.05)
    # -Hessian^-1 slope from the factor of the damped Hessian
    move = -lapack.dpotrs(factor, slope, lower=1)[0]
    # half of -slope'move is what a Newton step lowers the quadratic model by
    gain = float(-slope @ move) / 2.0
    if not model.groups.alone:
        move = groups.each(move)
    # theta is a logarithm: a factor of 20 is as far as the quadratic model can be trusted
    move = np.clip(move, -3.0, 3.0)
    # Newton follows the exponential tail of a column on its way out by 1 a step
    s, q = (x[sparse] for x in _leave_one_out(point, model.confidence[quadratic.columns]))
    most = s if model.groups.alone else model.take(columns).group_most(s)
    gone = runs_away(model, columns, s, q)
    move = np.where(gone & (w > 3.0 * most), 3.0, move)
    far = ~gone & model.selects[columns] & (w > 100.0 * most)
    if jump and far.any():
        stationary = own_precision(model, point.local, point.top, columns[far], s[far], q[far])
        move[far] = np.clip(np.log(stationary / (w / gamma)[far]), -3.0, 3.0)
        gain = max(gain, np.inf if np.any(move[far] < -1.0) else 0.0)
    return move, gain


def _line_search(model: RowModel, quadratic: _Quadratic, point: _Point, move: Array) -> _Point:
    columns = quadratic.columns[model.sparse[quadratic.columns]]
    # the model is not convex in theta even where its Hessian was made so
    for halvings in range(12):
        theta = point.theta.copy()
        theta[columns] += move / 2.0**halvings
        trial = _profile(model, quadratic, theta, (point.local, point.top))
        if trial.value <= point.value:
            return trial
    return point


def _leave_one_out(point: _Point, gamma: Array) -> tuple[Array, Array]:
    """s_j and q_j: information and score of each column with the other columns adjusted."""
    return np.maximum(gamma / point.variance - point.w, 0.0), point.mean / np.diag(point.B)
