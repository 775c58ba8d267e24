"""Model files whose structure was changed at random, each with a right checksum.

Run as a program: reads files, saved by `save_model`, and loads and uses changed copies of them
under a limit of memory and CPU time. Prints one line of JSON with what happened.
"""

import copy
import hashlib
import json
import random
import resource
import sys
import tracemalloc
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

MEMORY = 2**30  # bytes beyond what the libraries take
SECONDS = 0.05  # of CPU for each file, beside those of a start
MULTIPLE, CONSTANT = 100, 4e6  # memory of a load in bytes: of those of the file, and beside them

NUMBERS = [-(10**9), -3, -1, 0, 1, 2, 625, 700, 2**31, 2**53, 10**9, 2**63, 10**40, 0.5, 1e308]
WORDS = ["", "MT19937", "|S0", "<U0", "<f8", "|O", "<U536870911", "C", "csr_array", "numpy.float64"]
KINDS = [
    *("dict", "array", "frame", "scalar", "objects", "slice", "dtype", "ufunc", "type", "sparse"),
    *("random state", "object", "list", "tuple", "set", "frozenset"),
]


def split(data: bytes) -> tuple[Any, bytes]:
    """The head of a file and the bytes of its arrays."""
    text, _, raw = data.split(b"\n", 2)[2].partition(b"\n")
    return json.loads(text), raw


def joined(head: Any, raw: bytes) -> bytes:
    """A file with a right checksum."""
    body = json.dumps(head).encode() + b"\n" + raw
    return b"soubayes model 1\n%s\n%s" % (hashlib.sha256(body).hexdigest().encode(), body)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree with every key of it."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    found = [(node, key) for key in keys]
    for key in keys:
        found += places(node[key])
    return found


def mutate(head: Any, draw: random.Random) -> None:
    """Change one place of a tree."""
    container, key = draw.choice(places(head))
    turn = draw.randrange(8)
    if turn == 0:
        container[key] = draw.choice(NUMBERS)
    elif turn == 1:
        container[key] = draw.choice(WORDS)
    elif turn == 2:  # a part of another place
        other, name = draw.choice(places(head))
        container[key] = copy.deepcopy(other[name])
    elif turn == 3 and isinstance(container, dict):
        container[draw.choice([*KINDS, *WORDS])] = container.pop(key)
    elif turn == 4:
        del container[key]
    elif turn == 5 and isinstance(container, list):
        container[key:key] = [copy.deepcopy(container[key])] * draw.choice([1, 2, 300])
    elif turn == 6:
        container[key] = {draw.choice(KINDS): container[key]}
    else:
        container[key] = draw.choice([None, True, [], {}, [[]], {"list": []}])


def use(model: Any) -> None:
    """What a user does first; whatever a wrong model raises is an answer."""
    X = np.random.default_rng(0).normal(size=(7, 5))
    steps = [lambda: repr(model), lambda: model.predict(X), lambda: model.summary()]
    steps += [lambda: model.sample(2), lambda: model.transform(X), lambda: model[-1].sample(2)]
    steps += [lambda: model[:-1].transform(X)]
    steps += [lambda own=own: own.normal() for own in vars(model).values()]
    for step in steps:
        with suppress(Exception):
            step()


def main(count: int, files: list[str]) -> None:
    from soubayes import load_model

    whole = [Path(file).read_bytes() for file in files]
    for file in files:
        load_model(file)  # what it imports is not counted
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(spent.ru_utime + spent.ru_stime + 20 + SECONDS * count)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    warnings.simplefilter("ignore")
    draw, target = random.Random(0), Path(files[0]).with_name("changed")
    said = {"loaded": 0, "refused": 0, "other": [], "greedy": []}
    tracemalloc.start()
    for _ in range(count):
        head, raw = split(draw.choice(whole))
        for _ in range(draw.choice([1, 1, 1, 2, 5])):
            mutate(head, draw)
        data = joined(head, raw)
        target.write_bytes(data)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        model = None
        try:
            model = load_model(target)
            said["loaded"] += 1
        except ValueError as error:
            plain = "is not loaded: " in str(error)
            said["refused" if plain else "other"] += 1 if plain else [repr(error)]
        except Exception as error:
            said["other"].append(repr(error))
        if tracemalloc.get_traced_memory()[1] - before > MULTIPLE * len(data) + CONSTANT:
            said["greedy"].append(json.dumps(head)[:500])
        if model is not None:
            assert isinstance(model, BaseEstimator)
            use(model)
    print(json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
