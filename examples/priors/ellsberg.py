"""
Ellsberg's urn
==============

An urn holds 30 red balls and 60 that are black or yellow in an unknown proportion. People prefer a
bet on red (A) to one on black (B), and a bet on black or yellow (D) to one on red or yellow (C). No
belief about the urn explains both choices by expected utility. A low confidence in the belief does.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import EventTree, plot_event_tree

blacks = [0, 15, 30, 45, 60]
reference = {
    (f"{black} black", colour): count / 90 / len(blacks)
    for black in blacks
    for colour, count in (("red", 30), ("black", black), ("yellow", 60 - black))
}
urn = EventTree(reference, stages=("composition", "draw"))
bets = {
    "A: red": {"red"},
    "B: black": {"black"},
    "C: red or yellow": {"red", "yellow"},
    "D: black or yellow": {"black", "yellow"},
}
acts = {name: (lambda _, colour, wins=wins: float(colour in wins)) for name, wins in bets.items()}

# a draw from a known urn is an ordinary risk (inf); the composition of the urn is a guess
doubt = {"composition": 0.2, "draw": np.inf}
print(urn.rank(acts, doubt))
value = {name[0]: urn.value(act, doubt) for name, act in acts.items()}
assert value["A"] > value["B"]
assert value["D"] > value["C"]

# %%
# Expected utility with full confidence: among 500 random beliefs about the composition, none
# prefers both A to B and D to C.

rng = np.random.default_rng(0)
both = 0
for weights in rng.dirichlet(np.full(len(blacks), 0.5), size=500):
    belief = {
        path: p * weights[blacks.index(int(path[0].split()[0]))] for path, p in reference.items()
    }
    trusting = EventTree(belief, urn.stages)
    v = {n[0]: trusting.value(a, dict.fromkeys(urn.stages, np.inf)) for n, a in acts.items()}
    both += v["A"] > v["B"] + 1e-12 and v["D"] > v["C"] + 1e-12
print(f"beliefs that explain both choices: {both}")
assert both == 0

# %%
# The tree of bet B, with two compositions only. A doubted branch gets a worse probability than the
# reference gives it.

simple = EventTree(
    {path: p for path, p in reference.items() if path[0] in ("0 black", "60 black")},
    stages=urn.stages,
)
plot_event_tree(simple, acts["B: black"], doubt)
plt.show()
