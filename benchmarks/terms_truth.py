"""Terms where the truth is known, or where lme4 has an answer.

python benchmarks/terms_truth.py units UNITS ROWS RATIO TABLES
python benchmarks/terms_truth.py bands N TABLES SIGNAL
python benchmarks/terms_truth.py kinds N P TABLES CURVED
python benchmarks/terms_truth.py time classes|numbers
python benchmarks/terms_truth.py grouped FOLDER
python benchmarks/terms_truth.py many ROWS UNITS
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd

from soubayes import SoULinearRegression, SoULogisticRegression, SoUPoissonRegression

FUNCTIONS = (
    lambda x: np.sin(2 * np.pi * x),
    lambda x: (x - 0.5) ** 2,
    lambda x: np.exp(-50 * (x - 0.5) ** 2),
    lambda x: x,
    np.sqrt,
    lambda x: np.tanh(10 * (x - 0.5)),
)


def units(m, rows, ratio, tables):
    """Balanced units; the noise has standard deviation 1."""
    m, rows, ratio = int(m), int(rows), float(ratio)
    effects, sds, new = [], [], []
    for seed in range(500, 500 + int(tables)):
        rng = np.random.default_rng(seed)
        u, site = ratio * rng.normal(size=m), np.repeat(np.arange(m), rows)
        X = pd.DataFrame({"site": site.astype(str)})
        model = SoULinearRegression(terms=["(1 | site)"]).fit(
            X, 1 + u[site] + rng.normal(size=len(X))
        )
        band = model.terms_["(1 | site)"].set_index("site").loc[[str(j) for j in range(m)]]
        truth = u - u.mean()
        effects.append(np.mean((band["lower"] < truth) & (truth < band["upper"])))
        row = model.variance_components().iloc[0]
        sds.append(row["lower"] < ratio < row["upper"])
        low, high = model.predict(pd.DataFrame({"site": ["new"]}), quantiles=[0.05, 0.95])[0]
        y = 1 + ratio * rng.normal(size=200) + rng.normal(size=200)
        new.append(np.mean((low < y) & (y < high)))
    print(f"effects {np.mean(effects):.3f}, sd {np.mean(sds):.3f}, new units {np.mean(new):.3f}")


def bands(n, tables, signal):
    """Pointwise 90 % bands of six functions of equal size, and what is kept of 24 others."""
    covered, kept, curved = [], [], []
    grid = np.linspace(0, 1, 2001)
    for seed in range(1000, 1000 + int(tables)):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(int(n), 30))
        size = [float(signal) / f(grid).std() for f in FUNCTIONS]
        y = rng.normal(size=int(n))
        y += sum(s * f(X[:, j]) for j, (s, f) in enumerate(zip(size, FUNCTIONS, strict=True)))
        model = SoULinearRegression(terms="curves").fit(X, y)
        kind, effects = model.summary()["kind"].to_numpy(), model.term_effects()
        for j, (s, f) in enumerate(zip(size, FUNCTIONS, strict=True)):
            band = effects[f"s(x{j})"]
            truth = s * (f(band[f"x{j}"]) - f(X[:, j]).mean())
            covered.append(np.mean((band["lower"] < truth) & (truth < band["upper"])))
        kept.append(np.sum(kind[6:] != "absent"))
        curved.append(kind[:6] == "curved")
    each = np.reshape(covered, (-1, 6)).mean(axis=0).round(2)
    print(f"coverage {np.mean(covered):.3f}, by function {each}, noise variables kept a fit "
          f"{np.mean(kept):.2f}, called curved {np.mean(curved, axis=0).round(2)}")  # fmt: skip


def kinds(n, p, tables, size):
    """x0 is straight, x1 has a curved part of this standard deviation, the others are noise."""
    found = []
    for seed in range(int(tables)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(int(n), int(p)))
        A = np.column_stack([np.ones(len(X)), X[:, 1]])
        f = np.sin(2 * X[:, 1])
        f = f - A @ np.linalg.lstsq(A, f, rcond=None)[0]
        y = 0.5 * X[:, 0] + 0.5 * X[:, 1] + float(size) * f / f.std() + rng.normal(size=len(X))
        model = SoULinearRegression(terms="curves").fit(X, y)
        found.append(model.summary()["kind"].to_numpy())
    found = np.array(found)
    straight = np.delete(found, 1, axis=1) == "curved"
    print(f"x1 curved {np.mean(found[:, 1] == 'curved'):.2f}, another curved "
          f"{straight.any(axis=1).mean():.2f} of tables, noise variables kept a fit "
          f"{np.sum(found[:, 2:] != 'absent', axis=1).mean():.2f}")  # fmt: skip


def times(what):
    """Straight, with curves, with pairs."""
    rng = np.random.default_rng(0)
    n, p = (2_019, 56) if what == "classes" else (100_000, 20)
    X = rng.normal(size=(n, p))
    eta = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3] - 0.5 * X[:, 4]
    kind, y = SoULinearRegression, eta + rng.normal(size=n)
    if what == "classes":
        kind, y = SoULogisticRegression, eta + rng.logistic(size=n) > 0
    for terms in (None, "curves", *(["pairs"] if what == "classes" else [])):
        start = time.process_time()
        kind(terms=terms).fit(X, y)
        print(f"{terms or 'straight'}: {time.process_time() - start:.1f} CPU seconds")


def many(rows, levels):
    """Time and components with many units; the truth is 0.7, 0.3 and 1."""
    rng = np.random.default_rng(0)
    n, m = int(rows), int(levels)
    site = rng.integers(0, m, n)
    X = pd.DataFrame(rng.normal(size=(n, 5)), columns=list("abcde"))
    effect = 0.7 * rng.normal(size=m)[site] + 0.3 * rng.normal(size=m)[site] * X["c"]
    y = X["a"] + np.sin(2 * X["b"]) + effect + rng.normal(size=n)
    X["site"] = site
    for terms in (
        ["required(a)", "s(b)", "required(c)", "(1 | site)"],
        ["required(a)", "s(b)", "required(c)", "(c | site)"],
        ["curves", "(c || site)"],
    ):
        start = time.process_time()
        model = SoULinearRegression(terms=terms).fit(X, y)
        seconds = time.process_time() - start
        sds = model.variance_components()["sd"].round(3).to_dict()
        print(f"{terms}: {seconds:.1f} CPU seconds, {sds}")


def grouped(folder):
    """What lme4 has for the same tables is on the page docs/development/terms.md."""

    def read(name):
        return pd.read_csv(f"{folder}/{name}.csv").drop(columns="rownames")

    fixed = "required({})".format
    for name, y, terms in (
        ("lme4_sleepstudy", "Reaction", [fixed("Days"), "(Days || Subject)"]),
        ("nlme_Orthodont", "distance", [fixed("age"), fixed("Sex"), "(age || Subject)"]),
        ("mlmRev_Exam", "normexam",
         [*map(fixed, ("standLRT", "sex", "schgend")), "(standLRT || school)"]),
        ("lme4_sleepstudy", "Reaction", [fixed("Days"), "(Days | Subject)"]),
        ("nlme_Orthodont", "distance", [fixed("age"), fixed("Sex"), "(age | Subject)"]),
        ("mlmRev_Exam", "normexam",
         [*map(fixed, ("standLRT", "sex", "schgend")), "(standLRT | school)"]),
    ):  # fmt: skip
        table = read(name)
        model = SoULinearRegression(terms=terms).fit(table.drop(columns=y), table[y])
        print(name, model.variance_components().round(5).to_string(), sep="\n")
        print(model.summary()[["estimate", "sd"]].round(5).to_string())
    epil = read("MASS_epil")
    epil["trt"] = (epil["trt"] != "placebo") * 1.0
    epil["both"] = epil["lbase"] * epil["trt"]
    ticks, cbpp = read("lme4_grouseticks"), read("lme4_cbpp")
    rows = pd.concat(
        [
            cbpp.assign(y=1, w=cbpp["incidence"]),
            cbpp.assign(y=0, w=cbpp["size"] - cbpp["incidence"]),
        ]
    ).query("w > 0")
    for name, model, X, y, weight in (
        ("epil", SoUPoissonRegression(terms=[
            *map(fixed, ("lbase", "trt", "lage", "V4", "both")), "(1 | subject)"]),
         epil, epil["y"], None),
        ("grouseticks", SoUPoissonRegression(terms=[
            fixed("C(YEAR)"), fixed("cHEIGHT"), "(1 | BROOD)", "(1 | LOCATION)", "(1 | INDEX)"]),
         ticks, ticks["TICKS"], None),
        ("cbpp", SoULogisticRegression(terms=[fixed("C(period)"), "(1 | herd)"]),
         rows, rows["y"], rows["w"]),
    ):  # fmt: skip
        model.fit(X, y, sample_weight=weight)
        print(name, model.variance_components()["sd"].round(3).to_dict())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    work = {"units": units, "bands": bands, "kinds": kinds, "time": times, "grouped": grouped}
    work["many"] = many
    work[sys.argv[1]](*sys.argv[2:])
