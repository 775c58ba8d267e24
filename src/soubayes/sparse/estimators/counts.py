"""Sparse regression of counts."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from soubayes._types import Matrix, Rows, Targets
from soubayes.data.streams import as_rows
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.glm.shifted import with_exposure

Array = np.ndarray


class CountRegression(ResponseRegression):
    """Counts with mean exp(eta), seen in an exposure."""

    _positive = True

    def fit(
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), Dask collection, path or iterable
            The rows. Data that do not fit in memory come as in :meth:`SoULogisticRegression.fit`.
        y : array-like of shape (n,), or str, optional
            The counts, or the name of their column in a parquet file.
        sample_weight : array-like of shape (n,), optional
            A weight of 2 counts a row twice.
        groups : array-like of shape (n,), optional
            Which rows belong together, such as those of one patient. Folds hold out whole groups.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors, whose coefficient is 1. For rows that come in
            blocks the offset is a second column of y.
        exposure : array-like of shape (n,), optional
            For how long, or among how many, the events of a row were counted; above 0. The mean
            is proportional to it: its logarithm is added to the offset.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        return super().fit(X, y, sample_weight, groups, _offset(X, offset, exposure, y))

    def predict(
        self,
        X: Matrix,
        offset: ArrayLike | None = None,
        return_std: bool = False,
        quantiles: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Array | tuple[Array, Array]:
        """Predict the mean, standard deviation or quantiles of new counts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), or Dask collection
            The rows.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors; 0 if left out.
        return_std : bool, default=False
            Also return the predictive standard deviation of y.
        quantiles : array-like of shape (m,), optional
            Return these quantiles of the predictive distribution instead, whole numbers; levels
            between 0 and 1.
        exposure : array-like of shape (n,), optional
            Exposures of the rows; 1 if left out.

        Returns
        -------
        mean : ndarray of shape (n,)
            The predictive mean, averaged over the posterior; with ``quantiles`` an array of shape
            (n, m).
        sd : ndarray of shape (n,)
            Only with ``return_std=True``.
        """
        offset = _offset(X, offset, exposure)
        return super().predict(X, offset=offset, return_std=return_std, quantiles=quantiles)

    def log_density(
        self,
        X: Matrix,
        y: ArrayLike,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Array:
        """Log predictive probability of counts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The rows.
        y : array-like of shape (n,)
            Their counts.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors; 0 if left out.
        exposure : array-like of shape (n,), optional
            Exposures of the rows; 1 if left out.

        Returns
        -------
        log_density : ndarray of shape (n,)
            The logarithm of p(y | x), averaged over the posterior.
        """
        return super().log_density(X, y, offset=_offset(X, offset, exposure))

    def log_score(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Mean log predictive probability, a score for which larger is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The rows.
        y : array-like of shape (n,)
            Their counts.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors; 0 if left out.
        exposure : array-like of shape (n,), optional
            Exposures of the rows; 1 if left out.

        Returns
        -------
        score : float
            The weighted mean of :meth:`log_density`.
        """
        return super().log_score(X, y, sample_weight, _offset(X, offset, exposure))

    def score(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Share of the deviance that is explained, D².

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The rows.
        y : array-like of shape (n,)
            Their counts.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors; 0 if left out.
        exposure : array-like of shape (n,), optional
            Exposures of the rows; 1 if left out.

        Returns
        -------
        score : float
            1 for perfect predictions, 0 for those of one rate for all rows.
        """
        return super().score(X, y, sample_weight, _offset(X, offset, exposure))


def _offset(X: Any, offset: Any, exposure: Any, y: Any = 0) -> Any:
    """The offset plus the logarithm of the exposure, one number for each row of X."""
    if exposure is None:
        return offset
    if as_rows(X, y, None) is not None:
        raise ValueError(
            "exposure was given, but X comes in blocks: make its logarithm a second column of y "
            "instead."
        )
    return with_exposure(offset, exposure, X.shape[0] if hasattr(X, "shape") else len(X))
