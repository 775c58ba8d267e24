"""What the docstring of a public name must hold; checked by the build and by ``make test``."""

import inspect
from collections.abc import Iterator
from typing import Any

from numpydoc.docscrape import ClassDoc, FunctionDoc, NumpyDocString

# names without an equation or a source of their own: containers, files, data, warnings
WITHOUT_REFERENCES = {"QuadratureWarning", "TableEncoder", "load_model", "save_model"}


def faults(thing: Any, name: str) -> Iterator[str]:
    """What is missing or wrong in the docstring of a public name and of its public methods."""
    text = inspect.getdoc(thing) or ""
    doc = ClassDoc(thing) if inspect.isclass(thing) else FunctionDoc(thing)
    if not doc["Summary"]:
        yield "no summary"
    for google in ("Args:", "Returns:", "Attributes:", "Example:", "Examples:"):
        if any(line.strip() == google for line in text.splitlines()):
            yield f"{google!r} is not numpydoc"
    needed = ["Notes", "Examples"] + ([] if name in WITHOUT_REFERENCES else ["References"])
    for section in needed:
        if not doc[section]:
            yield f"no section {section!r}"
    if doc["Examples"] and not any(">>>" in line for line in doc["Examples"]):
        yield "no example that runs"
    yield from parameter_faults(thing, doc)
    if inspect.isclass(thing):
        plain = issubclass(thing, Warning) or not inspect.signature(thing).parameters
        if not (doc["Parameters"] or doc["Attributes"] or plain):
            yield "neither 'Parameters' nor 'Attributes'"
        for method_name, method in methods(thing):
            for fault in method_faults(method):
                yield f"method {method_name}: {fault}"
    elif not (doc["Returns"] or doc["Yields"]):
        yield "no section 'Returns'"


def methods(thing: type) -> Iterator[tuple[str, Any]]:
    """The public methods that this library, not a base class of another one, defines."""
    for name, member in inspect.getmembers(thing):
        module = getattr(member, "__module__", None) or ""
        if not name.startswith("_") and inspect.isroutine(member) and module.startswith("soubayes"):
            yield name, member


def method_faults(method: Any) -> Iterator[str]:
    """What a method lacks: a summary, a parameter, or what it returns."""
    doc = FunctionDoc(method)
    if not doc["Summary"]:
        yield "no summary"
        return
    yield from parameter_faults(method, doc)
    returns = inspect.signature(method).return_annotation
    if returns not in (None, "None", inspect.Signature.empty) and not doc["Returns"]:
        yield "no section 'Returns'"


def parameter_faults(thing: Any, doc: NumpyDocString) -> Iterator[str]:
    """Parameters of the signature without a description, and descriptions without a parameter."""
    try:
        signature = inspect.signature(thing)
    except ValueError:  # a class without a signature of its own
        return
    have = [name for name in signature.parameters if name != "self" and not name.startswith("_")]
    told = [
        part.strip().lstrip("*")
        for parameter in doc["Parameters"]
        for part in parameter.name.split(",")
    ]
    if missing := [name for name in have if name not in told]:
        yield f"parameters without a description: {', '.join(missing)}"
    if unknown := [name for name in told if name not in have]:
        yield f"described but not in the signature: {', '.join(unknown)}"
    for parameter in doc["Parameters"]:
        if not parameter.type:
            yield f"parameter {parameter.name} has no type"
        if not parameter.desc:
            yield f"parameter {parameter.name} has no description"
