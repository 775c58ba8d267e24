"""Descriptions that several classes share are written once, and each docstring is completed.

`fill_docstrings` adds what a numpydoc docstring leaves out: parameters of the signature,
attributes, what a method returns, and references. An entry is looked for in the docstring
itself, then in those of the base classes, then in a table. An entry without a text, or without a
type, takes only this part from there. ``help``, numpydoc and notebooks see the whole text; without
docstrings (``python -OO``) nothing happens.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

Made = TypeVar("Made")
_HEAD = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.M)
_ORDER = (
    "Parameters",
    "Attributes",
    "Returns",
    "Raises",
    "See Also",
    "Notes",
    "References",
    "Examples",
)
CITED_PAPER = """\
.. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
   uncertainty: from confidence modelling to sparse estimation"."""


class Entry(NamedTuple):
    """A parameter, an attribute or a result: its type, and its indented text."""

    kind: str
    text: str


def fill_docstrings(table: str = "") -> Callable[[Made], Made]:
    """Complete the docstring of a function, or those of a class and of its public methods.

    Where a text cites [1]_ and its references have no such entry, the paper is added.

    >>> class Shape:
    ...     "A shape."
    ...     def scaled(self, factor):
    ...         "Scale it."
    >>> made = fill_docstrings("factor : float\\n    A number above 0.")(Shape)
    >>> print(made.scaled.__doc__)
    Scale it.
    <BLANKLINE>
    Parameters
    ----------
    factor : float
        A number above 0.
    """
    shared = _entries(textwrap.dedent(table))

    def complete(thing: Made) -> Made:
        if not isinstance(thing, type):
            _complete(thing, [], shared)
            return thing
        bases = [base for base in thing.__mro__[1:] if _ours(base)]
        _complete(thing, bases, shared)
        for name, member in vars(thing).items():
            if not name.startswith("_") and inspect.isfunction(member):
                _complete(
                    member, [vars(base)[name] for base in bases if name in vars(base)], shared
                )
        return thing

    return complete


def _ours(base: type) -> bool:
    """Whether a class is of this package; scikit-learn's have words of their own."""
    return base.__module__.partition(".")[0] == __name__.partition(".")[0]


def _complete(thing: Any, bases: list[Any], shared: dict[str, Entry]) -> None:
    if not thing.__doc__:
        return
    intro, own = _sections(inspect.cleandoc(thing.__doc__))
    above = [_sections(inspect.cleandoc(base.__doc__ or ""))[1] for base in reversed(bases)]
    for title in ("Parameters", "Attributes", "Returns"):
        mine, known = _entries(own.get(title, "")), {}
        for sections in above:
            known.update(_entries(sections.get(title, "")))
        names = list(mine or known)
        if title == "Parameters":
            names = list(dict.fromkeys([*_arguments(thing), *mine]))
            known = shared | known
        elif title == "Attributes":  # those of the class alone, then those that it shares
            names = [*(name for name in mine if name not in known), *known]
        found = [(name, _joined(mine.get(name), known.get(name))) for name in names]
        if lines := [f"{name}{entry.kind}\n{entry.text}" for name, entry in found if entry]:
            own[title] = "\n".join(lines)
    for sections in above:
        if "References" in sections:
            own.setdefault("References", sections["References"])
    if "[1]_" in "".join([intro, *own.values()]) and ".. [1]" not in own.get("References", ""):
        own["References"] = "\n".join(filter(None, [CITED_PAPER, own.get("References")]))
    order = sorted(own, key=lambda title: _ORDER.index(title) if title in _ORDER else 0)
    parts = [f"{title}\n{'-' * len(title)}\n{own[title]}" for title in order]
    thing.__doc__ = "\n\n".join([intro, *parts])


def _arguments(thing: Any) -> list[str]:
    """The parameters as docstrings name them."""
    found = inspect.signature(thing).parameters.values()
    return [re.split(r"[:=]", str(each))[0].strip() for each in found]


def _joined(mine: Entry | None, there: Entry | None) -> Entry | None:
    if mine is None or there is None:
        return mine or there
    return Entry(mine.kind or there.kind, mine.text or there.text)


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and the sections."""
    intro, *parts = _HEAD.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return intro.rstrip(), {title: body.rstrip() for title, body in pairs}


def _entries(section: str) -> dict[str, Entry]:
    """The entries of a section: a line at the margin, and the indented lines below it."""
    return dict(_each_entry(section))


def _each_entry(section: str) -> Iterator[tuple[str, Entry]]:
    for block in re.split(r"\n(?=\S)", section.strip("\n")):
        head, _, text = block.partition("\n")
        name, colon, kind = head.partition(" : ")
        if name:
            yield name, Entry(colon + kind, text.rstrip())
