"""The constants that decide results, each with the page that says where it comes from.

``page#anchor`` is a heading under ``docs/development``. Constants of arithmetic (rounding, memory,
digits of a root) stand where they are used: another value gives the same result.
"""

import numpy as np

# ---- folds: which rows are held out ----------------------------------------------------------

# design#choosing-confidences: five and ten folds gave the same errors from 200 rows on
FOLDS = 5
# design#choosing-confidences: rows, folds where there are fewer rows, but not fewer than columns
MORE_FOLDS = ((100, 20), (200, 10))
# choosing#when-n-is-close-to-p: the same where a fold has fewer training rows than columns
SQUARE_FOLDS = ((300, 20), (1000, 10))
# design#choosing-confidences: of rows of which only the statistics are kept
STREAM_FOLDS = 5
# scaling#rows: rows from which moments, or losses and degrees of freedom, take the place of rows
LARGE = 10_000
# constants#rows-and-folds: rows from which a classifier holds out one fold only
ONE_PART = 2_000
# constants#rows-and-folds: rows below which folds would say nothing
FEWEST_ROWS = 20
# constants#rows-and-folds: the same for normal noise
FEWEST_NUMBERS = 6
# constants#rows-and-folds: rows for each column from which losses of new rows are estimated in the
# fitted ones
FAR_MORE = 10

# ---- the race of candidates ------------------------------------------------------------------

# design#choosing-confidences: power of the likelihood of the held-out rows in the weights
NUMBERS_POWER = 0.25
CLASSES_POWER = 0.1  # design#choosing-confidences
SURVIVAL_POWER = 0.3  # survival#the-choice
# design#choosing-confidences: degrees of freedom of the t scores
SCORE_DEGREES = 5.0
# constants#the-race: weights below this are set to 0
LEAST_WEIGHT = 1e-3
# families#recalibration: by which the log density of a row may depend on its share in the spread
OUTLIER_NATS = 5.0
# design#choosing-confidences: relative standard error of the mean square; 40 normal rows have 0.22
SETTLED_ERROR = 0.4
# constants#the-race: nats; candidates further behind have a relative weight below 0.7 %
BEHIND = 5.0
# constants#the-race: folds after which candidates are left behind
ROUNDS = (1, 2, 3, 5, 10)
# constants#the-race: folds after which one remaining fit needs no more
DECIDED = 5
# constants#the-race: held-out rows that a recalibration needs
ENOUGH_ROWS = 40
# constants#the-race: held-out rows before any candidate is left behind by the plain rule
SOME = 30
# constants#the-race: the same by a rule with a margin, of so many times the nats and the errors
EARLY = 10
EARLY_NATS, EARLY_ERRORS = 2.0, 3.0  # constants#the-race
# constants#the-race: held-out rows before the folds may end because all predict alike
SETTLED_ROWS = 1_000
# constants#the-race: nats a row by which further folds would change what the mixture scores
LITTLE_GAIN = 5e-4
# constants#the-race: folds before a dense end is left behind; one fold may have the outliers
DENSE_FOLDS = 2
# constants#points-of-the-dial: gamma_tau over gamma_b from which all columns have one scale
DENSE = 100.0
# choosing#when-n-is-close-to-p: nats by which a support beats ridge regression
RATHER_SPARSE = 10.0
# choosing#when-n-is-close-to-p: nats for each row by which no dense candidate comes near
CLEARLY_SPARSE = 1.0
# choosing#when-n-is-close-to-p: errors relative to those claimed, in so many folds
FAILED_PATH, TRIED_FOLDS = 3.0, 3
# constants#the-race: standard errors from which a difference is called better or worse
CLEAR_ERRORS = 2.0

# ---- candidates: name, prior of the local scales, gamma_tau, gamma_b ---------------------------

# constants#points-of-the-dial, choosing#the-second-ridge-of-regression
LEAST_SQUARES_POINTS = (
    ("ridge", "exponential", DENSE, 1.0),
    ("strong ridge", "exponential", 4.0 * DENSE, 4.0),
    ("in between", "exponential", 0.6, 2.0),
    ("nearly sparse", "exponential", 0.1, 4.0),
    ("horseshoe", "horseshoe", 0.2, 2.0),
)
# constants#points-of-the-dial
ROW_POINTS = (
    ("ridge", "exponential", 1.0, 1.0),
    ("cautious", "exponential", 0.003, 3.0),
    ("nearly sparse", "exponential", 0.001, 1.0),
    ("horseshoe", "horseshoe", 1.0, 1.0),
)
# choosing#the-sure-points-of-classification: prior variances over gamma_b
SURE_VARIANCES = (0.01, 0.1, 1.0)
# survival#the-choice: prior variances of a log risk, all columns together
RISK_VARIANCES = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)
# survival#the-choice: of a selected column beside dense others, whose log risk has the variances
SELECTED_VARIANCES, OTHER_VARIANCES = (0.05, 0.2), (1.0, 3.0)
# constants#points-of-the-dial: of var(y) that gamma_b times the noise may be, or nothing is fitted
UNEXPLAINED = 0.8

# ---- the path ----------------------------------------------------------------------------------

# constants#the-path: points of the grid, from confidence 1 to 3 log p
N_POINTS = 22
LINEAR_LOCAL, ROW_LOCAL = 1e-9, 1e-6  # solver#one-coordinate-exactly: every tau follows the data
# linear#the-rule-behind-auto: of the log number of supports of a size
PRICE = 1.5
# terms#the-places-of-terms: the same where places of a support with groups are taken out
TRIM_PRICE = 2.0
# linear#the-rule-behind-auto: variance of log|signal| below which signals are not taken to be alike
LEAST_SPREAD = 1.0
# linear#the-path-solver-and-what-it-is-not: largest rise of the noise from one point to the next
GUARD = 1.5
# constants#the-path: largest change of a kappa_j at which a point counts as reached
PATH_CHANGE = 2e-2
# speed#what-was-gained-on-2026-11-18: the same in a fold, how many-th points it visits, and columns
# for each row from which it visits all
FOLD_CHANGE, FOLD_STRIDE, WIDE_RATIO = 0.1, 3, 3.0
# solver#columns-that-look-alike: correlation from which one column can stand in for another
ALIKE = 0.8
# solver#columns-that-look-alike: from which J hardly depends on how two columns share a coefficient
SAME = 0.99
# constants#the-path: z^2/gamma_b at which a dropped column returns
RETURNS = 1.05
# design#choosing-confidences: how many-th points a path of rows visits in a fold or on many rows
STRIDE = 4
# constants#the-path: by how much the score should fall for fewer columns to be tried; nuisance
# parameters, which follow, lower it further than is expected
GAIN, NUISANCE_GAIN = 1.0, -30.0
# constants#the-path: by which a score may rise while weaker columns leave, before it may fall again
HOPELESS = 30.0
# constants#the-path: columns from which n x n systems hand over to Newton steps
FEW_COLUMNS = 150
# constants#the-path: coordinates with which a path of several classes begins, and the share of the
# rows where a longer one begins
ROOM, LATE_ROWS = 240, 0.5
# families#few-rows: of `few_rows` in the score of a path: of a support where y is a number with
# noise, and of each column for a likelihood of rows
SUPPORT_OF_FEW, COLUMN_OF_FEW = 24.0, 360.0
# families#residuals-that-contradict-the-family: standard errors by which phi exceeds 1
CLEAR = 2.0
# families#residuals-that-contradict-the-family: leverage of a row that alone decides a coefficient
FULL_LEVERAGE = 0.99
# design#several-classes-at-once: numbers and classes up to which softmax takes some ten seconds
SOFTMAX_NUMBERS, SOFTMAX_CLASSES = 2_000_000, 20

# ---- Cox regression ----------------------------------------------------------------------------

# survival#the-choice: sd of log risks, and their range, that separate the data: V has no minimum
WILD, SEPARATED_RANGE = 10.0, 500.0
# survival#one-quadratic-form-all-solvers: log hazard ratio of one sd that no data have shown
SEPARATED_EFFECT = 20.0
# survival#the-choice: pieces of the hazard, and events in each at least
PIECES, PER_PIECE = 10, 10

# ---- the posterior over supports -----------------------------------------------------------------

# constants#supports: mean and sd of log(information x variance) before data, and their weight
CENTRE, WIDTH, PULL = np.log(64.0), 1.4, 1.0
# constants#supports: probability at which an effect enters the product, and leaves it
CLAIM, LEAVE = 0.5, 0.4
# constants#supports: correlation from which columns look alike, and from which one only repeats
# another unless its log Bayes factor exceeds the third number
SIMILAR, STANDS_IN, SUPPORT = 0.5, 0.99, np.log(3.0)
# constants#supports: odds below which a column does not compete with others
FAINT = 1e-2
# constants#supports: fewer effects are never too many for the rows
MANY_EFFECTS = 20
# constants#supports: of the slab's variances, in rows: effects of log odds 5 for one sd
WIDEST_SLAB = 25.0
# constants#supports: least degrees of freedom of the noise
FEWEST_DEGREES = 5.0
# inclusion#fine-mapping-sets-n--50-logistic-and-susier-n--100-2026-11-17-commit-e6020f2
SET_LEVEL, PURITY = 0.95, 0.5
# inclusion#pure-noise-noise-n--100-commit-c0f8bff: probability of an effect from which it has a set
PRESENCE = 0.9

# ---- priors of nuisance parameters ---------------------------------------------------------------

# linear#student-noise: shape and rate of the gamma prior of d - 2
SHAPE, RATE = 2.0, 0.1
# constants#priors: default scale of the noise prior in units of var(y)
NOISE_SHARE = 1e-6
# constants#priors: sds of a log shape, and of a log gap between cut points
SHAPE_SD, GAP_SD = 2.0, 2.0
# constants#priors: mean and sd of the log dispersion of counts
DISPERSION_PRIOR = -1.0, 2.0

# ---- frequentist intervals -------------------------------------------------------------------

# intervals#the-working-prior: of the slab's normal parts, in units of its scale
SPREADS = 2.0 ** np.arange(-1.0, 5.0)
# intervals#the-working-prior: largest log odds of the lower tail's share of 1 - level
LARGEST_SPLIT = 3.0
# intervals#more-columns-than-rows: by which these log odds are multiplied for a debiased ridge
LEAN = 0.5
# intervals#likelihoods-of-rows: products in the one step of a row-wise model, about two seconds
MOST_WORK = 4e9
