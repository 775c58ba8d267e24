"""What sparsity costs: the selected columns beside all columns on held-out rows, in words."""

from dataclasses import dataclass

from soubayes.results import Printable, Shown

CLEAR_ERRORS = 2.0  # standard errors from which a difference is called better or worse


@dataclass(frozen=True, repr=False)
class Sparsity(Printable):
    """What it costs to keep only the selected columns; its text is a sentence.

    Predictions of the sparse point and of the mixture are compared on the same rows, both
    recalibrated. The difference is positive if the selected columns alone predict worse. Where the
    measure is the root mean square error, it is in units of y; otherwise in nats a row.

    >>> print(Sparsity(6, 10, 55.2, 54.1, "RMSE", 1.1, 0.4))
    6 of 10 columns; alone they predict held-out rows worse than all columns (RMSE 55.2 against
    54.1, a difference of 1.1 ± 0.4).
    >>> print(Sparsity(6, 10, 0.45, 0.44, "log loss", 0.01, 0.02))
    6 of 10 columns; alone they predict held-out rows not clearly worse than all columns (a
    difference of 0.01 ± 0.02 nats a row).
    """

    selected: int
    columns: int
    error: float  # of the sparse point, as in the table of candidates
    error_all: float  # of the mixture on the same rows
    measure: str  # what the errors are
    difference: float  # in units of y, or nats a row
    standard_error: float  # of the difference; NaN if it is not known
    rows: str = "held-out rows"  # whose errors they are
    terms: str = ""  # what is kept, in words, where columns are those of terms

    def _shown(self) -> Shown:
        columns = self.terms or f"{self.selected:,} of {self.columns:,} columns"
        return [f"{columns}; alone they predict {self.rows} {self._compared()}."]

    def _compared(self) -> str:
        if self.difference == 0.0:  # the mixture is the sparse point
            return "as well as all columns"
        how = f"{'worse' if self.difference > 0.0 else 'better'} than all columns"
        if abs(self.difference) < CLEAR_ERRORS * self.standard_error:
            how = f"not clearly {how}"
        gap = f"{abs(self.difference):.2g}"
        if self.standard_error >= 0.0:
            gap += f" ± {self.standard_error:.2g}"
        if self.measure != "RMSE":
            return f"{how} (a difference of {gap} nats a row)"
        both = f"RMSE {self.error:.3g} against {self.error_all:.3g}"
        return f"{how} ({both}, a difference of {gap})"
