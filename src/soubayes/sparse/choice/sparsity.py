"""What sparsity costs: the errors of the selected columns beside those of all columns, in words."""

from dataclasses import dataclass

from soubayes.results import Printable, Shown

EQUAL_ERRORS = 0.005  # relative difference of errors below which they count as equal
FAR_APART = 2.0  # ratio of errors above which it is not given


@dataclass(frozen=True, repr=False)
class Sparsity(Printable):
    """What it costs to keep only the selected columns; its text is a sentence.

    >>> print(Sparsity(6, 10, 55.2, 54.1, "RMSE"))
    6 of 10 columns; alone they predict held-out rows 2% worse than all columns (RMSE 55.2 against
    54.1).
    """

    selected: int
    columns: int
    error: float  # of the sparse point
    error_all: float  # of the mixture on the same rows
    measure: str  # what the errors are
    rows: str = "held-out rows"  # whose errors they are

    def _shown(self) -> Shown:
        both = f"({self.measure} {self.error:.3g} against {self.error_all:.3g})"
        low, high = sorted([self.error, self.error_all])
        how = f"{'worse' if self.error == high else 'better'} than all columns {both}"
        if high - low <= EQUAL_ERRORS * self.error_all:
            how = "as well as all columns"
        elif high <= FAR_APART * low:  # a ratio to a number near 0 says little
            how = f"{abs(self.error / self.error_all - 1.0):.0%} {how}"
        columns = f"{self.selected:,} of {self.columns:,} columns"
        return [f"{columns}; alone they predict {self.rows} {how}."]
