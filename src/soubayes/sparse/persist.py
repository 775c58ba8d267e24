"""Model files that load without running code (skops, extra ``io``)."""

import os
from typing import Any

from soubayes._files import atomic_path
from soubayes._optional import require


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted sparse estimator to ``path``, whole or not at all.

    >>> import tempfile, pathlib
    >>> from soubayes import SoULinearRegression
    >>> model = SoULinearRegression().fit([[0.0], [1.0], [2.0], [3.1]], [0.0, 1.0, 2.1, 3.0])
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.skops"
    >>> save_model(model, file)
    >>> load_model(file).coef_ == model.coef_
    array([ True])
    """
    skops = require("skops.io", "save_model")
    with atomic_path(path) as temporary:
        temporary.write_bytes(skops.dumps(model))


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read what `save_model` wrote; a file that names types of other packages is refused.

    >>> load_model("no-such-file.skops")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file.skops'
    """
    skops = require("skops.io", "load_model")
    with open(path, "rb") as file:
        data = file.read()
    wanted = skops.get_untrusted_types(data=data)
    foreign = [name for name in wanted if not name.startswith("soubayes.")]
    if foreign:
        raise ValueError(
            f"{os.fspath(path)!r} holds types that soubayes does not write: {', '.join(foreign)}. "
            "It is not loaded."
        )
    return skops.loads(data, trusted=wanted)
