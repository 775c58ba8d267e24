"""Model files: what comes back, and that no file can bring in anything else."""

import hashlib
import importlib
import json
import pickle
import pkgutil
import random
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.random_projection import SparseRandomProjection

import soubayes
from damage import KINDS, damaged
from soubayes import (
    SoUGeneralizedRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNormalMeans,
    load_model,
    save_model,
)
from soubayes.data.encoding import TableEncoder
from soubayes.model_files import _OURS, _from_bytes, _to_bytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = 2 * X[:, 0] + 0.3 * RNG.normal(size=60)
LABELS = np.where(X[:, 1] + 0.3 * RNG.normal(size=60) > 0, "yes", "no")
FRAME = pd.DataFrame(X, columns=["a", "b $", "c=d", "ü", "e"]).assign(kind=["u", "v", "w"] * 20)

MODELS = {
    "linear": lambda: SoULinearRegression(choice="path").fit(X, Y),
    "several targets": lambda: SoULinearRegression(choice="path").fit(
        FRAME[["a", "ü"]], np.c_[Y, X]
    ),
    "low rank": lambda: SoULinearRegression(choice="path", confidence_local=1.0).fit(X.T, Y[:5]),
    "inclusion": lambda: SoULinearRegression(choice="path", inclusion=True).fit(X, Y),
    "normal means": lambda: SoUNormalMeans().fit(X),
    "classifier": lambda: SoULogisticRegression(confidence_coef=1.0).fit(X, LABELS),
    "feature blocks": lambda: SoULogisticRegression(
        confidence_coef=1.0, feature_blocks={"free": {"columns": np.array([0]), "prior": "normal"}}
    ).fit(X, np.arange(60) % 3),
    "pipeline": lambda: make_pipeline(
        StandardScaler(), PCA(3), SoULogisticRegression(confidence_coef=1.0)
    ).fit(X, LABELS),
    "columns": lambda: make_pipeline(
        ColumnTransformer(
            [
                ("gaps", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "e"]),
                ("kind", OneHotEncoder(sparse_output=False), ["kind"]),
                ("root", FunctionTransformer(np.cbrt), slice(1, 3)),
            ],
            remainder="passthrough",
        ),
        SoULinearRegression(choice="path"),
    ).fit(FRAME, Y),
    "sparse matrix": lambda: make_pipeline(
        SparseRandomProjection(4, random_state=0), SoULinearRegression(choice="path")
    ).fit(X, Y),
    "table": lambda: make_pipeline(TableEncoder(), SoULinearRegression(choice="path")).fit(
        FRAME, Y
    ),
    "generator": lambda: SoULinearRegression(
        choice="path", random_state=np.random.RandomState(0)
    ).fit(X, Y),
    "not fitted": lambda: SoULinearRegression(confidence_coef=2.0),
}


def same(one, two):
    """Whether two objects are made of the same classes, values and bits."""
    if type(one) is not type(two):
        return False
    if isinstance(one, pd.DataFrame):
        return one.equals(two) and one.columns.equals(two.columns)
    if isinstance(one, np.random.RandomState):
        return same(one.get_state(), two.get_state())
    if isinstance(one, np.ndarray) and one.dtype != object:
        return one.tobytes("A") == two.tobytes("A") and one.dtype == two.dtype
    if isinstance(one, np.ndarray | list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(map(same, one.values(), two.values()))
    if hasattr(one, "__dict__") and not isinstance(one, type):
        return same(vars(one), vars(two))
    return one is two or one == two or one != one


@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_is_what_was_saved(name, tmp_path):
    model = MODELS[name]()
    save_model(model, tmp_path / "model.soubayes")
    again = load_model(tmp_path / "model.soubayes")
    assert same(model, again)
    assert not same(model, SoULinearRegression(choice="path"))
    for method in ("predict", "predict_proba"):
        if hasattr(model, method) and name != "not fitted":
            data = {"table": FRAME, "columns": FRAME, "low rank": X.T}.get(name, X)
            data = FRAME[["a", "ü"]] if name == "several targets" else data
            np.testing.assert_array_equal(
                getattr(again, method)(data), getattr(model, method)(data)
            )


def test_a_loaded_model_goes_on_learning(tmp_path):
    model = SoULinearRegression(choice="path").fit(X, Y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model").partial_fit(X[:9], Y[:9])
    np.testing.assert_array_equal(again.coef_, model.partial_fit(X[:9], Y[:9]).coef_)


@pytest.mark.parametrize(
    "value",
    [
        [None, True, -3, 10**30, 0.1, np.nan, -np.inf, "", "\ud800 ü\n", (), {"a": [1]}],
        {1: "x", (2, 3): "y", None: 0.0, "": {4}},
        [np.float32(0.1), np.bool_(True), np.str_("s"), np.datetime64("2026-01-01")],
        [np.zeros((0, 3)), np.array(5), np.array(["ab", ""]), np.array([], "U"), np.ones(2, ">i2")],
        [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(9)[::2], np.array([[1j]])],
        [np.array([["a", None], [1, np.int8(2)]], dtype=object), np.array([], object)],
        [slice(1, None), np.dtype(">f4"), np.dtype(object), np.float32, float, object, np.exp],
        frozenset({1, 2}),
    ],
)
def test_values_keep_their_types_and_bits(value):
    again, _ = _from_bytes(_to_bytes(value))
    assert same(again, value)


def test_matrices_generators_and_arrays_held_twice():
    generator = np.random.RandomState(3)
    generator.normal()
    shared = np.arange(3.0)
    for matrix in (sp.csr_array(X > 1), sp.csc_matrix(X)):
        again, _ = _from_bytes(_to_bytes(matrix))
        assert type(again) is type(matrix)
        np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    (again, one, two), _ = _from_bytes(_to_bytes([generator, shared, shared]))
    assert again.normal() == generator.normal()
    assert one is two


def test_a_file_holds_names_but_no_modules_of_ours():
    """So that a file written today is read when the modules have moved."""
    for make in MODELS.values():
        data = _to_bytes(make())
        assert data.startswith(b"soubayes model 1\n")
        assert b"soubayes." not in data
        assert b"._" not in data.split(b"\n")[2]  # nor private ones of scikit-learn


def test_what_cannot_be_saved_is_named_and_nothing_is_written(tmp_path):
    class Own(BaseEstimator):
        pass

    class SoUNormalMeans(BaseEstimator):
        """A stranger under one of our names."""

    for model, said in [
        (
            make_pipeline(SelectKBest(), SoULinearRegression(choice="path")),
            r"model.steps\[0\]\[1\].score_func",
        ),
        (
            make_pipeline(Own(), SoULinearRegression(choice="path")),
            r"model.steps\[0\]\[1\] is a .*Own",
        ),
        (SoUNormalMeans(), "model is a .*SoUNormalMeans"),
        (SoULinearRegression(choice="path", feature_blocks={"a": len}), r"feature_blocks\['a'\]"),
        (np.zeros(2, dtype=[("a", float)]), "model is a numpy.ndarray"),
        (SoUGeneralizedRegression(len), "model.likelihood is a builtins.*cannot hold"),
    ]:
        with pytest.raises(TypeError, match=said):
            save_model(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


WHOLE = _to_bytes(SoULogisticRegression(confidence_coef=1.0).fit(X, LABELS))


# ---- files that are not ours -------------------------------------------------------------------


def file_of(node, arrays=(), raw=b"", versions=None):
    """A file with a right checksum around any content."""
    versions = versions or {"soubayes": "0", "scikit-learn": sklearn.__version__}
    head = {"versions": versions, "arrays": arrays, "model": node}
    body = json.dumps(head).encode() + b"\n" + raw
    return b"soubayes model 1\n%s\n%s" % (hashlib.sha256(body).hexdigest().encode(), body)


def refused(data, path):
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is not loaded: ") as caught:
        load_model(path)
    said = str(caught.value)
    assert path.name in said
    assert said.endswith(".")
    assert "\n" not in said
    return said


def modules():
    """All modules of the package, however it is arranged."""
    for found in pkgutil.walk_packages(soubayes.__path__, "soubayes."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def test_no_other_attribute_of_any_module_can_be_named():
    pytest.importorskip("jax")  # of all modules: the core alone cannot import some of them
    tried = 0
    for module in [soubayes, *modules()]:
        for attribute in {*dir(module), *vars(module)}:
            names = {attribute, f"{module.__name__}.{attribute}", f"{module.__name__}:{attribute}"}
            for name in names - set(_OURS):
                with pytest.raises(ValueError, match="is not among the classes"):
                    _from_bytes(file_of({"object": [name, {}]}))
                for kind in ("type", "ufunc"):
                    if name in ("int", "float", "bool", "str", "object"):
                        continue
                    node = {kind: name}
                    try:
                        made, _ = _from_bytes(file_of(node))
                    except KeyError:
                        continue
                    assert type(made) is np.ufunc
                tried += 1
    assert tried > 3000


def test_what_our_names_stand_for_is_a_class_of_data():
    for name in _OURS:
        made, _ = _from_bytes(file_of({"object": [name, {}]}))
        assert type(made).__name__ == name
        assert type(made).__module__.startswith("soubayes.")
        assert vars(made) == {}


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "sklearn.pipeline.clone",
        "sklearn.pipeline.Bunch",
        "sklearn.pipeline.make_pipeline",
        "sklearn.base.BaseEstimator",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.utils.parallel.Parallel",
        "sklearn.linear_model._base.sp",
        "sklearn.ensemble.Parallel",
        "sklearn.conftest.fetch",
        "sklearn.cluster.KMeans",  # reads beyond centres that are too small
        ".StandardScaler",
        "",
    ],
)
def test_other_classes_and_functions_are_refused(name, tmp_path):
    said = refused(file_of({"object": [name, {}]}), tmp_path / "evil")
    assert "is not among the classes" in said


def test_files_of_other_programs_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("schema.json", "{}")
    for data in [
        (tmp_path / "model.zip").read_bytes(),
        pickle.dumps(SoULinearRegression(choice="path")),
        b"",
        b"soubayes model",
        b"soubayes model 2\n\n",
    ]:
        refused(data, tmp_path / "other")
    newer = _to_bytes(SoULinearRegression(choice="path")).replace(b"model 1", b"model 7", 1)
    assert "it has format 7, but this version reads format 1" in refused(newer, tmp_path / "new")


class Watch:
    """Python's audit events of one kind of work; a hook cannot be removed, so it is switched."""

    def __init__(self):
        self.seen = None
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if self.seen is not None and event.split(".")[0] in (
            *("compile", "exec", "open", "os", "subprocess", "socket", "shutil", "ctypes"),
            *("pickle", "code", "marshal", "pty", "signal", "webbrowser", "urllib"),
        ):
            self.seen.append((event, arguments))


@pytest.fixture(scope="module")
def watch():
    return Watch()


NAMES = [
    *_OURS,
    *("sklearn.pipeline.Pipeline", "sklearn.preprocessing.StandardScaler", "os.system", "list"),
    *(
        "soubayes.threads.os",
        "__class__",
        "__reduce__",
        "__dict__",
        "csr_array",
    ),
    *("int", "numpy.float64", "<f8", "|O", "C", "F", "MT19937", "add"),
]
NODES = [
    *("dict", "array", "scalar", "objects", "slice", "dtype", "ufunc", "type", "sparse", "set"),
    *("random state", "object", "list", "tuple", "frozenset", "TypeNode", "MethodNode", "function"),
]


def random_node(draw, depth=0):
    kind = draw.randrange(10)
    if depth > 3 or kind < 4:
        return draw.choice([None, True, 0, -1, 3, 10**400, 0.5, float("nan"), *NAMES])
    if kind < 6:
        return [random_node(draw, depth + 1) for _ in range(draw.randrange(4))]
    content = random_node(draw, depth + 1)
    if draw.random() < 0.5:
        content = [draw.choice(NAMES), {draw.choice(NAMES): random_node(draw, depth + 1)}]
    return {draw.choice(NODES): content}


def test_random_nodes_become_data_or_nothing(watch):
    """Files of random nodes, each with a right checksum: loading executes nothing."""
    for name in _OURS:
        _from_bytes(file_of({"object": [name, {}]}))  # import them first
    draw = random.Random(0)
    arrays = [["<f8", [2], "C"], ["<i4", [1, 2], "F"], ["<U1", [1], "C"]]
    made, kinds = 0, set()
    for turn in range(4000):
        heads = random_node(draw) if turn % 10 == 0 else arrays
        data = file_of(random_node(draw), heads, bytes(28))
        watch.seen = []
        with suppress(Exception):
            value, _ = _from_bytes(data)
            made += 1
            kinds.add(type(value).__module__.split(".")[0])
        seen, watch.seen = watch.seen, None
        assert seen == []
    assert made > 400
    assert kinds <= {"builtins", "numpy", "soubayes", "sklearn", "scipy"}


def test_a_hostile_depth_or_size_is_one_sentence(tmp_path):
    deep = b'{"versions": {}, "arrays": [], "model": ' + b'{"list": [' * 10**5
    body = deep + b"\n"
    data = b"soubayes model 1\n%s\n%s" % (hashlib.sha256(body).hexdigest().encode(), body)
    refused(data, tmp_path / "deep")
    refused(file_of({"array": 0}, [["<f8", [10**15], "C"]], bytes(8)), tmp_path / "large")
    refused(file_of({"array": 0}, [["|O", [1], "C"]], bytes(8)), tmp_path / "pointers")
    refused(file_of({"array": 0}, [["<f8", [1], "C"]], bytes(9)), tmp_path / "longer")
    beyond = {"sparse": ["csr_array", {"tuple": [1, 1]}, *({"array": i} for i in range(3))]}
    heads = [["<f8", [1], "C"], ["<i4", [1], "C"], ["<i4", [2], "C"]]
    raw = np.array([1.0]).tobytes() + np.array([10**6, 0, 1], "<i4").tobytes()
    refused(file_of(beyond, heads, raw), tmp_path / "beyond")


def state(place=624, has_gauss=0, name="MT19937", gauss=0.0):
    """A file with a generator at some place of its 624 words, as an attribute of a model."""
    node = {"random state": {"tuple": [name, {"array": 0}, place, has_gauss, gauss]}}
    node = {"object": ["SoULinearRegression", {"random_state": node}]}
    return file_of(node, [["<u4", [624], "C"]], bytes(4 * 624))


def test_a_generator_outside_its_words_is_refused(tmp_path):
    """NumPy takes any place and reads foreign memory there."""
    for place in (10**9, 700, 625, -1, -3, True, 3.0, "3", None):
        refused(state(place), tmp_path / "generator")
    refused(state(has_gauss=2), tmp_path / "generator")
    refused(state(name="PCG64"), tmp_path / "generator")
    refused(state(gauss="0"), tmp_path / "generator")
    (tmp_path / "generator").write_bytes(state(624))
    assert 0.0 <= load_model(tmp_path / "generator").random_state.uniform() <= 1.0


@pytest.mark.parametrize("dtype", ["|S0", "<U0"])
def test_arrays_of_nothing_take_no_memory(dtype, tmp_path):
    node = {"object": ["SoULinearRegression", {"coef_": {"array": 0}}]}
    refused(file_of(node, [[dtype, [2**30], "C"]]), tmp_path / "nothing")


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict"])
def test_keys_of_one_hash_are_refused(kind, tmp_path):
    keys = [k * (2**61 - 1) for k in range(20_000)]
    content = keys if kind != "dict" else [[key, None] for key in keys]
    node = {"object": ["SoULinearRegression", {"feature_blocks": {kind: content}}]}
    assert "made to look alike" in refused(file_of(node), tmp_path / "slow")


def test_one_array_in_many_tables_is_refused(tmp_path):
    heads, raw = [["<f8", [1000, 1], "C"], ["<i4", [1001], "C"]], bytes(12004)
    table = {"frame": [["a"], [{"array": 0}]]}
    matrix = {"sparse": ["csr_array", {"tuple": [1000, 1]}, *({"array": 1},) * 3]}
    for node in (table, matrix):
        held = {"object": ["SoULinearRegression", {"path_": {"list": [node] * 1000}}]}
        refused(file_of(held, heads, raw), tmp_path / "many")
    again = {"object": ["SoULinearRegression", {"path_": table}]}
    (tmp_path / "one").write_bytes(file_of(again, heads, raw))
    assert load_model(tmp_path / "one").path_.shape == (1000, 1)


@pytest.mark.parametrize("value", [None, 3, "model", [1], {"a": 1}, np.zeros(3)])
def test_only_estimators_are_saved_and_loaded(value, tmp_path):
    with pytest.raises(TypeError, match="which a model file cannot hold"):
        save_model(value, tmp_path / "model")
    assert "not an estimator" in refused(_to_bytes(value), tmp_path / "model")


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_changed_structures_are_refused_or_harmless(count, tmp_path):
    """With right checksums, under limits of memory and CPU time, and used if they load."""
    files = [tmp_path / str(number) for number in range(len(MODELS))]
    for file, make in zip(files, MODELS.values(), strict=True):
        save_model(make(), file)
    program = [sys.executable, str(Path(__file__).with_name("mutations.py")), str(count)]
    done = subprocess.run([*program, *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["other"] == said["greedy"] == []
    assert said["loaded"] + said["refused"] == count
    assert min(said["loaded"], said["refused"]) > count // 20


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_damaged_files(kind, tmp_path):
    for number, data in enumerate(damaged(WHOLE, kind, 200)):
        if number < 5:
            refused(data, tmp_path / "damaged.soubayes")
        with pytest.raises(ValueError, match=r"damaged|format|not a model file"):
            _from_bytes(data)


def test_another_scikit_learn_is_said_for_its_classes_only(tmp_path):
    other = {"soubayes": "0", "scikit-learn": "0.1"}
    path = tmp_path / "model"
    path.write_bytes(file_of({"object": ["sklearn.pipeline.Pipeline", {}]}, versions=other))
    with pytest.warns(InconsistentVersionWarning, match=r"from version 0\.1"):
        load_model(path)
    path.write_bytes(file_of({"object": ["SoULinearRegression", {}]}, versions=other))
    load_model(path)
