"""What a Stan program says of its priors: their order, and the lines that write them down.

The text of the model block is read statement by statement. A statement belongs to the parameter on
its left side (``theta ~ normal(mu, tau)``, ``target += normal_lpdf(theta | mu, tau)``, and brms's
``lprior += ...``); the parameters on its right side are the parents. Statements about data are the
likelihood.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_DISCRETE = "bernoulli|binomial|beta_binomial|categorical|hypergeometric|multinomial|neg_binomial"
_DISCRETE += "|ordered_logistic|ordered_probit|poisson|dirichlet_multinomial|discrete_range"
_MASS = re.compile(rf"^({_DISCRETE})(_\w+)?$")
_REAL_LINE = ("normal", "std_normal", "cauchy", "student_t", "double_exponential", "logistic")
_NAME = re.compile(r"[A-Za-z]\w*")
_SAMPLED = re.compile(
    r"(?P<left>[A-Za-z][^;{}~=]*?)\s*~\s*(?P<dist>\w+)\s*\((?P<args>[^;]*?)\)"
    r"\s*(?:T\s*\[(?P<truncated>[^\]]*)\])?\s*;"
)
_ADDED = re.compile(r"\b(?P<to>target|lprior)\s*\+=\s*(?P<sum>[^;]*);")
_DENSITY = re.compile(r"\w+_lp[dm]f\s*\(\s*(?P<left>[^|()]*(?:\([^()]*\)[^|()]*)*?)\s*[|)]")
_ASSIGNED = re.compile(r"([A-Za-z]\w*)\s*(?:\[[^;=]*\])?\s*\+?=(?!=)([^;]*);")


_BOUNDS = re.compile(r"<\s*(?:lower|upper|offset|multiplier)\s*=[^;]*?>(?=[\s\[])")


class _Parameter(NamedTuple):
    name: str
    positive: bool  # declared with lower=0 and no upper bound
    scalar: bool


class StanProgram:
    """A Stan program, read for its priors.

    >>> program = StanProgram(
    ...     "parameters { real x; real mu; } model { mu ~ normal(0, 1); x ~ normal(mu, 1); }"
    ... )
    >>> program.parents()["x"], program.order()
    ({'mu'}, ['mu', 'x'])
    """

    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        self._text = re.sub(r"//[^\n]*", "", text)
        self._parameters = _declared(self._block("parameters"))
        self._model = self._block("model")
        self._transformed = self._block("transformed parameters")
        self._meaning: dict[str, set[str]] = {}
        unbounded = _BOUNDS.sub(" ", self._transformed + self._model)
        for name, value in _ASSIGNED.findall(unbounded):
            if name not in ("target", "lprior"):
                self._meaning.setdefault(name, set()).update(_NAME.findall(value))

    def names(self) -> list[str]:
        """The parameters, as they are declared."""
        return [parameter.name for parameter in self._parameters]

    def parents(self) -> dict[str, set[str]]:
        """For each parameter the others that its prior depends on."""
        parents: dict[str, set[str]] = {name: set() for name in self.names()}
        for owner, words in self._statements():
            if owner in parents:
                parents[owner] |= self._depends_on(words) - {owner}
        return parents

    def order(self) -> list[str]:
        """The parameters, each after its parents and otherwise as they are declared."""
        parents, order = self.parents(), list[str]()
        while len(order) < len(parents):
            ready = [n for n in parents if n not in order and parents[n] <= set(order)]
            if not ready:
                circle = [name for name in parents if name not in order]
                raise ValueError(
                    f"the priors of {circle} in the Stan program depend on each other. Make them "
                    "one block with groups=."
                )
            order.append(ready[0])
        return order

    def generated_quantities(self) -> str:
        """The model block, with its terms added up by parameter."""

        def added(match: re.Match) -> str:
            owner = self._owner(_left(match["sum"]) or match["sum"])
            if match["sum"].strip() == "lprior":
                return ""
            return f"{self._total(owner)} += {match['sum']};"

        def sampled(match: re.Match) -> str:
            owner = self._owner(match["left"])
            return f"{self._total(owner)} += {self._density(match, owner)};"

        body = _SAMPLED.sub(sampled, _ADDED.sub(added, self._model))
        priors = [
            added(match) for match in _ADDED.finditer(self._transformed) if match["to"] == "lprior"
        ]
        totals = [*(f"lp_{name}" for name in self.names()), "log_lik"]
        lines = [f"  real {total} = 0;" for total in totals]
        inner = [line.strip() for line in (*priors, *body.split("\n")) if line.strip()]
        lines += ["  {", *(f"    {line}" for line in inner), "  }"]
        return "\n".join(["generated quantities {", *lines, "}"])

    def _total(self, owner: str | None) -> str:
        return "log_lik" if owner is None else f"lp_{owner}"

    def _density(self, match: re.Match, owner: str | None) -> str:
        left, dist, args = match["left"].strip(), match["dist"], match["args"].strip()
        given = f" | {args}" if args else ""
        kind = "lpmf" if _MASS.match(dist) else "lpdf"
        density = f"{dist}_{kind}({left}{given})"
        if match["truncated"] is not None:
            low, _, high = (part.strip() for part in match["truncated"].partition(","))
            if low and high:
                ends = f"{dist}_lcdf({high}{given}), {dist}_lcdf({low}{given})"
                return f"{density} - log_diff_exp({ends})"
            end = f"lcdf({high}" if high else f"lccdf({low}"
            return f"{density} - {dist}_{end}{given})"
        half = [p for p in self._parameters if p.name == owner == left and p.positive and p.scalar]
        if half and dist in _REAL_LINE:
            density += f" - {dist}_lccdf(0{given})"
        return density

    def _statements(self) -> list[tuple[str | None, set[str]]]:
        """Owner and words of every statement that adds to the log density."""
        found = []
        for match in _SAMPLED.finditer(self._model):
            found.append((self._owner(match["left"]), set(_NAME.findall(match[0]))))
        for match in _ADDED.finditer(self._transformed + self._model):
            owner = self._owner(_left(match["sum"]) or match["sum"])
            found.append((owner, set(_NAME.findall(match["sum"]))))
        return found

    def _owner(self, left: str) -> str | None:
        """The last declared parameter on the left side; None if that is data."""
        words = self._depends_on(set(_NAME.findall(left)))
        owners = [name for name in self.names() if name in words]
        return owners[-1] if owners else None

    def _depends_on(self, words: set[str]) -> set[str]:
        """The parameters that these words stand for, through all assignments."""
        seen: set[str] = set()
        todo = list(words)
        while todo:
            word = todo.pop()
            if word not in seen:
                seen.add(word)
                todo += [] if word in self.names() else self._meaning.get(word, ())
        return seen & set(self.names())

    def _block(self, title: str) -> str:
        before = "" if title.startswith("transformed") else "(?<!transformed )"
        text = re.sub(r"transformed\s+", "transformed ", self._text)
        start = re.search(rf"{before}\b{title}\s*\{{", text)
        if start is None:
            return ""
        depth, end = 1, start.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        return text[start.end() : end - 1]


def _left(total: str) -> str | None:
    """The left side of the first density of a sum."""
    match = _DENSITY.search(total)
    return match["left"] if match else None


def _declared(block: str) -> list[_Parameter]:
    parameters = []
    for statement in re.sub(r"\s+", " ", block).split(";"):
        # bounds and sizes away: what is left is a type and a name
        bare = re.sub(r"<[^;]*?>(?=[\s\[])|\[[^\]]*\]", " ", statement)
        words = _NAME.findall(bare.partition("=")[0])
        if words:
            positive = bool(re.search(r"lower\s*=\s*0\s*>", statement))
            scalar = words[0] == "real" and "[" not in re.sub(r"<[^;]*?>", "", statement)
            parameters.append(_Parameter(words[-1], positive, scalar))
    return parameters


def stan_log_priors(program: str | Path) -> str:
    """Write the generated quantities that :func:`sensitivity` needs of a Stan program.

    Parameters
    ----------
    program : str or Path
        The text of the program, or the path of its file. Programs that brms makes
        (``make_stancode``) work as well.

    Returns
    -------
    block : str
        A block ``generated quantities`` with ``lp_x``, the log prior of each parameter x given
        earlier ones, and ``log_lik``, the log likelihood. Paste it at the end of the program, or
        pass the lines inside to brms with ``stanvar(block = "genquant", scode = ...)``.

    Notes
    -----
    Densities are normalised. A scalar parameter with ``lower=0`` and a prior on the real line gets
    the constant of the half that is left; for vectors it is missing, which changes the KL by a
    constant and no derivative.

    References
    ----------
    .. [1] N. Kallioinen, T. Paananen, P.-C. Bürkner and A. Vehtari (2024), "Detecting and
       diagnosing prior and likelihood sensitivity with power-scaling", Statistics and Computing 34,
       whose R package priorsense reads such quantities too.

    Examples
    --------
    >>> program = '''data { vector[8] y; }
    ... parameters { real mu; real<lower=0> tau; vector[8] x; }
    ... model {
    ...   tau ~ cauchy(0, 5);
    ...   x ~ normal(mu, tau);
    ...   y ~ normal(x, 1);
    ... }'''
    >>> print(stan_log_priors(program))
    generated quantities {
      real lp_mu = 0;
      real lp_tau = 0;
      real lp_x = 0;
      real log_lik = 0;
      {
        lp_tau += cauchy_lpdf(tau | 0, 5) - cauchy_lccdf(0 | 0, 5);
        lp_x += normal_lpdf(x | mu, tau);
        log_lik += normal_lpdf(y | x, 1);
      }
    }
    """
    return StanProgram(program_text(program)).generated_quantities()


def program_text(program: str | Path) -> str:
    """The text of a program, or an error if it is none."""
    text = program.read_text() if isinstance(program, Path) else program
    if not re.search(r"\bparameters\s*\{", text):
        raise ValueError(
            f"the Stan program is {text[:40]!r}, which has no block 'parameters'. Give its text, "
            "or the Path of its file."
        )
    return text


def is_program(given: object) -> bool:
    """Whether this is the text of a Stan program, or the path of one."""
    return isinstance(given, Path) or (
        isinstance(given, str) and re.search(r"\bparameters\s*\{", given) is not None
    )


def program_order(program: str | Path) -> Sequence[str]:
    """The parameters of a Stan program, each after its parents."""
    return StanProgram(program_text(program)).order()
