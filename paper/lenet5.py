"""lenet5: convolutions on MNIST, channels, features and units pruned along one path."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from paper.digits import load_digits_data
from paper.frontier import Published, checkpoint, draw, largest, scores, table
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Content, Picture

# SBP: Neklyudov et al. (2017); the others as in frontier.py. Sizes: channels, channels, features,
# units; multiply–adds follow from them, biases included.
PUBLISHED = [
    Published("SBP", "3–18–284–283", 0.9, 215_975),
    Published("BC-GNJ", "8–13–88–13", 1.0, 288_337),
    Published("BC-GHS", "5–10–76–16", 1.0, 156_922),
    Published("L0", "20–25–45–462", 0.9, 1_127_002),
    Published("L0-sep", "9–18–65–25", 1.0, 397_046),
]
# "convolutions" multiplies the confidences in the two convolutions. The path begins with an
# accurate network, a high confidence then removes channels, and a very low one estimates the
# weights of what is left again.
SETTINGS = {
    "epochs": [16, 12, 40],
    "confidences": [0.006, 1.0, 0.00005],
    "convolutions": [90.0, 27.0],
}


def grid(size: str) -> list[Task]:
    """One path a seed; the quick one has few epochs."""
    if size == "toy":
        return [Task(0, {"data": "digits", "epochs": 2, "confidences": [0.1, 1.0]})]
    if size == "quick":
        return [Task(0, {"data": "mnist", **SETTINGS, "epochs": [2, 3, 5]})]
    return [Task(seed, {"data": "mnist", **SETTINGS}) for seed in range(3)]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One path: the size and the test error of its networks."""
    from soubayes import Conv, Pool, SoUNetClassifier

    data = load_digits_data(parameters["data"], parameters.get("train"), seed)
    side = round(data.X_train.shape[1] ** 0.5)
    first, second = parameters.get("convolutions", (1.0, 1.0))
    lenet = (Conv(20, 5, first), Pool(2), Conv(50, 5, second), Pool(2), 500)
    net = SoUNetClassifier(
        hidden=lenet if side == 28 else (Conv(4, 3), Pool(2), 8),
        confidence_weights=tuple(parameters["confidences"]),
        learning_rate=0.002,
        epochs=parameters["epochs"],
        input_shape=(side, side, 1),
        random_state=seed,
        checkpoint=checkpoint("lenet5", seed, parameters),
    ).fit(data.X_train, data.y_train)
    found = scores([net], data)
    # the papers name channels, features and units, not the pixels
    found["sizes"] = ["–".join(sizes.split("–")[1:]) for sizes in found["sizes"]]
    return found


def report(rows: list[Row]) -> Content:
    """The frontier as a figure and a table."""
    rows = largest(rows)
    if not rows:
        return []
    note = (
        "Test error by 100 posterior draws against multiply–adds of one image, counted as in the "
        "papers: biases included, features of the last convolution pruned one by one."
    )
    return [
        Picture("lenet5", "Error against size", note, partial(draw, rows, PUBLISHED)),
        table(rows, PUBLISHED, "channels–channels–features–units"),
    ]


EXPERIMENTS = [
    Experiment(
        name="lenet5",
        shows="error against size of LeNet-5, one path of confidences",
        where="beyond the paper; the task of Louizos et al. (2017, 2018)",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.3, "quick": 8.0, "full": 55.0},
    )
]
