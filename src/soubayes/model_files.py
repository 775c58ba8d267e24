"""Model files: plain data, and an exact list of the classes that they may become.

A file is two lines of text, a line of JSON and the bytes of its arrays::

    soubayes model 1
    <SHA-256 of everything below this line>
    {"versions": {...}, "arrays": [[dtype, shape, order], ...], "model": ...}
    <bytes>

In ``model``, None, booleans, numbers and text stand for themselves and everything else is
``{kind: content}`` with one of the kinds of `_Reader`. An object is the name of its class and its
attributes. Names are looked up in `_OURS` or among the public estimators of scikit-learn, and
nothing of the class is called: so no file can run code, and classes may move between modules.

A file may come from anyone. Every field is checked before it is used. Reading takes memory and time
in proportion to the file: arrays lie in its bytes, what is copied is counted (`_Reader.copied`) and
keys that were made to have one hash are refused (`_hashable`).
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from soubayes._files import atomic_path
from soubayes._types import Estimator, File
from soubayes._warnings import warn

_FORMAT = 1
_MAGIC = b"soubayes model "

# estimators with files of their own (safetensors), which name their class
_NETWORKS = ("SoUNetRegressor", "SoUNetClassifier", "SoUNetEnsemble")
# name in files -> where the class is now
_OURS = {
    "SoULinearRegression": "soubayes",
    "SoULogisticRegression": "soubayes",
    "SoUNormalMeans": "soubayes",
    "SoUGeneralizedRegression": "soubayes",
    "SoUPoissonRegression": "soubayes",
    "SoUNegativeBinomialRegression": "soubayes",
    "SoUGammaRegression": "soubayes",
    "SoUOrdinalRegression": "soubayes",
    "SoUCoxRegression": "soubayes",
    "BaselineDraws": "soubayes.sparse.survival.hazard",
    "PiecewiseHazard": "soubayes.sparse.survival.hazard",
    "KaplanMeier": "soubayes.sparse.survival.measures",
    "TableEncoder": "soubayes.data.encoding",
    "Component": "soubayes.sparse.posterior",
    "Mixture": "soubayes.sparse.posterior",
    "Posterior": "soubayes.sparse.posterior",
    "LowRankPosterior": "soubayes.sparse.posterior",
    "UnitPosterior": "soubayes.sparse.unit_posterior",
    "ProductClasses": "soubayes.sparse.rows.classes",
    "JointClasses": "soubayes.sparse.rows.classes",
    "ClassView": "soubayes.sparse.rows.classes",
    "Shifted": "soubayes.sparse.likelihoods.shifted",
    "Poisson": "soubayes.sparse.likelihoods.poisson",
    "NegativeBinomial": "soubayes.sparse.likelihoods.negative_binomial",
    "Gamma": "soubayes.sparse.likelihoods.gamma",
    "LogNormal": "soubayes.sparse.likelihoods.lognormal",
    "Ordinal": "soubayes.sparse.likelihoods.ordinal",
    "Cuts": "soubayes.sparse.likelihoods.ordinal",
    "Supports": "soubayes.sparse.inclusion.view",
    "Sparsity": "soubayes.sparse.choice.race",
    "SupportPosterior": "soubayes.sparse.inclusion.supports",
    "GroupLabels": "soubayes.sparse.blocks",
    "LeftOut": "soubayes.sparse.least_squares.integrated",
    "TermColumns": "soubayes.terms.expansion",
    "TermBlock": "soubayes.terms.expansion",
    "Plain": "soubayes.terms.expansion",
    "Bend": "soubayes.terms.expansion",
    "Indicators": "soubayes.terms.expansion",
    "Slopes": "soubayes.terms.expansion",
    "CentredProduct": "soubayes.terms.pairs",
    "NaturalSpline": "soubayes.terms.basis",
    "Cycle": "soubayes.terms.basis",
    "FoldedMoments": "soubayes.sparse.designs.moments",
    "Moments": "soubayes.sparse.designs.moments",
    "ColumnEstimates": "soubayes.sparse.intervals.estimates",
}
# public modules whose estimators prepare columns for ours or combine several of ours; not
# sklearn.cluster, whose compiled loops take the shapes and thread counts of attributes on trust
_SKLEARN = {
    *("sklearn.compose", "sklearn.cross_decomposition"),
    *("sklearn.decomposition", "sklearn.discriminant_analysis", "sklearn.ensemble"),
    *("sklearn.feature_extraction", "sklearn.feature_extraction.text"),
    *("sklearn.feature_selection", "sklearn.impute", "sklearn.kernel_approximation"),
    *("sklearn.linear_model", "sklearn.multiclass", "sklearn.multioutput", "sklearn.pipeline"),
    *("sklearn.preprocessing", "sklearn.random_projection"),
}
_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES = {t.__name__: t for t in (list, tuple, set, frozenset)}
_TYPES: dict[str, type] = {t.__name__: t for t in (bool, int, float, str, object)}
_TYPES |= {f"numpy.{t.__name__}": t for t in np.sctypeDict.values()}
_UFUNCS = {name: value for name, value in vars(np).items() if type(value) is np.ufunc}
_SPARSE = {c.__name__: c for c in (sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix)}
_ARRAY_KINDS = "biufcSUmM"
_COPIES = 4  # bytes of tables and matrices for each byte of a file; its own models copy less than 1
_ALIKE = 8  # keys of one dict that may have the same hash, as 1, 1.0 and True have
_TWISTER = 624  # words of the state of a Mersenne twister


def save_model(model: Estimator, path: File) -> None:
    """Write an estimator, or a scikit-learn pipeline with a sparse one, to a file.

    Parameters
    ----------
    model : estimator
        A sparse estimator such as :class:`SoULinearRegression`, public scikit-learn estimators
        around one, or a network. Functions and classes of your own cannot be saved, such as the
        likelihood of a :class:`SoUGeneralizedRegression`.
    path : str or path-like
        The file. Any name is allowed; ``.soubayes`` is the usual ending.

    Returns
    -------
    None
        The file is written whole or not at all.

    See Also
    --------
    load_model : Read the file.

    Notes
    -----
    The file holds a checksum, JSON and raw arrays. Reading it runs no code, unlike unpickling.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from soubayes import SoULinearRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.1]], [0.0, 1.0, 2.1, 3.0]
    >>> model = SoULinearRegression(choice="path").fit(X, y)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.soubayes"
    >>> save_model(model, file)
    >>> load_model(file).coef_ == model.coef_
    array([ True])
    """
    if type(model).__name__ in _NETWORKS and type(model).__module__.startswith("soubayes."):
        model.save(path)
        return
    if not isinstance(model, BaseEstimator):
        _refuse(model, "model")
    data = _to_bytes(model)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def load_model(path: File) -> Estimator:
    """Read a model that :func:`save_model` wrote.

    Parameters
    ----------
    path : str or path-like
        The file. A damaged file, or one that names a class that :func:`save_model` does not write,
        is refused with a ``ValueError``.

    Returns
    -------
    model : estimator
        An estimator with the attributes of the one that was saved.

    See Also
    --------
    save_model : Write the file.

    Notes
    -----
    Loading runs no code of the file, so files of others can be read.

    Examples
    --------
    >>> load_model("no-such-file.soubayes")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file.soubayes'
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        model, wrote = (_network(path), None) if _is_network(data) else _from_bytes(data)
        if not isinstance(model, BaseEstimator):
            raise ValueError(f"it holds a {type(model).__name__}, not an estimator")
    except Exception as error:  # whatever a hostile file provokes ends here
        reason = str(error) or type(error).__name__
        raise ValueError(f"{os.fspath(path)!r} is not loaded: {reason}.") from error
    if wrote is not None and wrote != sklearn.__version__:
        warning = InconsistentVersionWarning(
            estimator_name=type(model).__name__,
            current_sklearn_version=sklearn.__version__,
            original_sklearn_version=wrote,
        )
        warn(warning)
    return model


def _is_network(data: bytes) -> bool:
    """Whether a file begins as safetensors do: the length of a header, and JSON."""
    return data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data)


def _network(path: File) -> Any:
    """A network, by the class that its file names."""
    import soubayes
    from soubayes.networks import storage

    name = storage.read(path)[1].get("class")
    if name not in _NETWORKS:
        raise ValueError(f"it holds a {name}, which is not a network of soubayes")
    return getattr(soubayes, name).load(path)


def _to_bytes(model: Any) -> bytes:
    from soubayes import __version__

    writer = _Writer()
    head = {
        "versions": {"soubayes": __version__, "scikit-learn": sklearn.__version__},
        "model": writer.node(model, "model"),
        "arrays": [[a.dtype.str, a.shape, _order(a)] for a in writer.arrays],
    }
    body = json.dumps(head).encode() + b"\n"
    body += b"".join(a.tobytes(_order(a)) for a in writer.arrays)
    return _MAGIC + b"%d\n%s\n" % (_FORMAT, _checksum(body)) + body


def _from_bytes(data: bytes) -> tuple[Any, str | None]:
    """The model, and the version of scikit-learn that its file needs, if any."""
    first, _, rest = data.partition(b"\n")
    if not first.startswith(_MAGIC):
        raise ValueError("it is not a model file of soubayes, or its beginning is damaged")
    checksum, _, body = rest.partition(b"\n")
    if first != _MAGIC + b"%d" % _FORMAT:
        found = first.removeprefix(_MAGIC).decode(errors="replace")
        raise ValueError(f"it has format {found[:20]}, but this version reads format {_FORMAT}")
    if checksum != _checksum(body):
        raise ValueError("it is damaged (its content does not match its checksum)")
    text, _, raw = body.partition(b"\n")
    head = json.loads(text)
    reader = _Reader(_read_arrays(head["arrays"], raw), len(data))
    model = reader.node(head["model"])
    return model, str(head["versions"]["scikit-learn"]) if reader.sklearn else None


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


class _Writer:
    """Python objects to JSON nodes; ``arrays`` collects the arrays, each once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._place: dict[int, int] = {}

    def node(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind.__name__ in _SEQUENCES and kind is _SEQUENCES[kind.__name__]:
            return {kind.__name__: self.nodes(value, where)}
        if kind is dict:
            return {"dict": [self.nodes(item, f"{where}[{item[0]!r}]") for item in value.items()]}
        if kind is pd.DataFrame:
            return self.frame(value, where)
        if kind in (np.ndarray, np.memmap):
            return self.array(value, where)
        if isinstance(value, np.generic):
            return {"scalar": self.array(np.asarray(value), where)}
        if kind is slice:
            return {"slice": self.nodes([value.start, value.stop, value.step], where)}
        if isinstance(value, np.dtype) and value.fields is None:
            return {"dtype": value.str}
        for label, table in (("type", _TYPES), ("ufunc", _UFUNCS)):
            for name, known in table.items():
                if value is known:
                    return {label: name}
        if _SPARSE.get(kind.__name__) is kind:
            parts = [value.shape, value.data, value.indices, value.indptr]
            return {"sparse": [kind.__name__, *self.nodes(parts, where)]}
        if kind is np.random.RandomState:
            return {"random state": self.node(value.get_state(legacy=True), where)}
        if (own := _name_of(kind)) is None:
            return _refuse(value, where)
        state = {key: self.node(part, f"{where}.{key}") for key, part in vars(value).items()}
        return {"object": [own, state]}

    def nodes(self, values: Any, where: str) -> list[Any]:
        return [self.node(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def array(self, value: np.ndarray, where: str) -> Any:
        if value.dtype == object:
            return {"objects": [value.shape, self.nodes(value.ravel(), where)]}
        if value.dtype.kind not in _ARRAY_KINDS:
            return _refuse(value, where)
        if id(value) not in self._place:
            self._place[id(value)] = len(self.arrays)
            self.arrays.append(value)  # also keeps it alive, so its id stays its own
        return {"array": self._place[id(value)]}

    def frame(self, value: pd.DataFrame, where: str) -> Any:
        """A table with numbered rows; columns of one dtype are one array."""
        if not isinstance(value.index, pd.RangeIndex):
            return _refuse(value.index, f"{where}.index")
        names = [str(name) for name in value.columns]
        alike = value.dtypes.nunique() == 1
        parts = [value.to_numpy()] if alike else [column.to_numpy() for _, column in value.items()]
        return {"frame": [names, self.nodes(parts, where)]}


class _Reader:
    """JSON nodes to Python objects: the only things that a file can become."""

    def __init__(self, arrays: list[np.ndarray], size: int) -> None:
        self.arrays = arrays
        self.left = _COPIES * size  # bytes that may still be copied
        self.sklearn = False  # whether a class of scikit-learn was among the objects
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "dict": self.pairs,
            "array": self.array,
            "frame": self.frame,
            "scalar": self.scalar,
            "objects": self.objects,
            "slice": self.span,
            "dtype": _dtype,
            "ufunc": _UFUNCS.__getitem__,
            "type": _TYPES.__getitem__,
            "sparse": self.sparse,
            "random state": self.random_state,
            "object": self.object,
            "list": self.nodes,
            "tuple": lambda content: tuple(self.nodes(content)),
            "set": lambda content: set(_hashable(self.nodes(content))),
            "frozenset": lambda content: frozenset(_hashable(self.nodes(content))),
        }

    def node(self, node: Any) -> Any:
        if isinstance(node, dict):
            ((kind, content),) = node.items()
            if kind not in self._kinds:
                raise ValueError(f"it holds a {kind!r}, which no model file does")
            return self._kinds[kind](content)
        if isinstance(node, list):
            raise ValueError("it holds a list where a value must be")
        return node

    def nodes(self, content: list[Any]) -> list[Any]:
        return [self.node(part) for part in content]

    def pairs(self, content: list[Any]) -> dict[Any, Any]:
        found = [self.nodes(pair) for pair in content]
        _hashable([key for key, _ in found])
        return dict(found)

    def array(self, place: int) -> np.ndarray:
        return self.arrays[_whole(place, len(self.arrays) - 1)]

    def scalar(self, content: Any) -> Any:
        value = self.node(content)
        if not isinstance(value, np.ndarray) or value.ndim:
            raise ValueError("it holds a scalar that is not an array of dimension 0")
        return value[()]

    def span(self, content: Any) -> slice:
        ends = self.nodes(content)
        if not all(end is None or type(end) in (int, str) for end in ends):
            raise ValueError("it holds a slice whose ends are not numbers")
        return slice(*ends)

    def copied(self, *arrays: np.ndarray) -> None:
        """Arrays that are about to be copied; one array may be named many times."""
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise ValueError("it holds a value where an array must be")
        self.left -= sum(array.nbytes for array in arrays)
        if self.left < 0:
            raise ValueError("its tables and matrices are larger than the file")

    def objects(self, content: Any) -> np.ndarray:
        shape, parts = content
        values = np.empty(len(parts), dtype=object)
        for i, part in enumerate(parts):  # at once, arrays among them would be taken apart
            values[i] = self.node(part)
        return values.reshape(_shape(shape))

    def frame(self, content: Any) -> pd.DataFrame:
        names, parts = content
        columns = self.nodes(parts)
        self.copied(*columns)
        if not all(type(name) is str for name in names):
            raise ValueError("it holds a table whose names are not text")
        if len(columns) == 1 and columns[0].ndim == 2:
            return pd.DataFrame(columns[0], columns=names)
        found = [x.tolist() if x.dtype == object else x for x in columns]  # text, as it was made
        return pd.DataFrame(dict(zip(range(len(names)), found, strict=True))).set_axis(
            names, axis=1
        )

    def sparse(self, content: Any) -> Any:
        name, *parts = content
        shape, data, indices, indptr = self.nodes(parts)
        self.copied(data, indices, indptr)
        if {indices.dtype.kind, indptr.dtype.kind} != {"i"} or data.dtype.kind not in "biufc":
            raise ValueError("it holds a matrix of wrong types")
        if not len(indptr):
            raise ValueError("it holds a matrix without rows")
        matrix = _SPARSE[name]((data, indices, indptr), shape=_shape(shape))
        matrix.check_format(full_check=True)
        return matrix

    def random_state(self, content: Any) -> np.random.RandomState:
        name, key, place, has_gauss, gauss = self.node(content)
        self.copied(key)
        if name != "MT19937" or key.dtype != np.uint32 or key.shape != (_TWISTER,):
            raise ValueError("it holds a random state of another kind")
        if type(gauss) is not float:
            raise ValueError("it holds a random state whose last draw is not a number")
        generator = np.random.RandomState(0)
        where = _whole(place, _TWISTER), _whole(has_gauss, 1)  # NumPy does not check them
        generator.set_state((name, key, *where, gauss))
        return generator

    def object(self, content: Any) -> Any:
        name, state = content
        made: Any = object.__new__(_class_of(name))
        self.sklearn |= name not in _OURS
        vars(made).update({key: self.node(part) for key, part in state.items()})
        return made


def _class_of(name: str) -> type:
    """The class that ``name`` stands for in a file, if it is one of those that files may hold."""
    if name in _OURS:
        return getattr(import_module(_OURS[name]), name)
    home, _, short = name.rpartition(".")
    if home in _SKLEARN and not short.startswith("_"):
        found = vars(import_module(home)).get(short)
        if isinstance(found, type) and issubclass(found, BaseEstimator) and _home(found) == home:
            return found
    raise ValueError(f"it names {name!r}, which is not among the classes of a model file")


def _name_of(kind: type) -> str | None:
    """The inverse of `_class_of`, or None."""
    for name in (kind.__name__, f"{_home(kind)}.{kind.__name__}"):
        with suppress(ValueError):
            if _class_of(name) is kind:
                return name
    return None


def _home(kind: type) -> str:
    """The public module of a class: scikit-learn defines most of them in private ones."""
    return kind.__module__.partition("._")[0]


def _read_arrays(heads: list[Any], raw: bytes) -> list[np.ndarray]:
    arrays, at = [], 0
    for dtype, shape, order in heads:
        kind = _dtype(dtype)
        if kind.kind not in _ARRAY_KINDS or kind.itemsize == 0 or order not in ("C", "F"):
            raise ValueError(f"it holds an array of {str(dtype)[:20]!r}, order {str(order)[:20]!r}")
        array = np.ndarray(_shape(shape), kind, raw, at, order=order)
        at += array.nbytes
        arrays.append(array.copy(order))
    if at != len(raw):
        raise ValueError("its arrays do not fill it")
    return arrays


def _dtype(text: Any) -> np.dtype:
    found = np.dtype(text) if type(text) is str and len(text) < 40 else None
    if found is None or found.str != text:
        raise ValueError(f"it names a dtype {str(text)[:40]!r}")
    return found


def _whole(value: Any, most: int) -> int:
    """A whole number from 0 to ``most``."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"it holds {str(value)[:40]} where a number from 0 to {most} must be")
    return value


def _shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list | tuple) or len(sizes) > 32:
        raise ValueError("it holds an array without a shape")
    return tuple(_whole(size, 2**62) for size in sizes)


def _hashable(keys: list[Any]) -> list[Any]:
    """Keys of a set or dict, if they do not share a hash: such keys take quadratic time.

    Hashes of numbers can be computed by anyone: those of 2**61 - 1 and its multiples are 0.
    """
    hashes = np.sort([hash(key) for key in keys])
    if np.any(hashes[_ALIKE:] == hashes[:-_ALIKE]):
        raise ValueError("it holds keys that were made to look alike")
    return keys


def _order(array: np.ndarray) -> Literal["C", "F"]:
    """Column-major arrays stay so: products of them round in another order."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _refuse(value: Any, where: str) -> Any:
    kind = type(value)
    raise TypeError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which a model file cannot hold: it "
        "holds sparse estimators, estimators of scikit-learn around them, and networks, made of "
        "numbers, text and arrays. Use pickle for classes of your own."
    )
