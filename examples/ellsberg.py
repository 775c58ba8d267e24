"""Ellsberg's urn: 30 red balls, 60 black or yellow in unknown proportion.

People prefer A (100 dollars if red) to B (if black), and D (black or yellow) to C (red or yellow).
No single belief about the urn makes an expected-utility agent do both; a doubted one does.
"""

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

# a draw from a known urn is mere risk (inf); its composition is a guess
doubt = {"composition": 0.2, "draw": np.inf}
print("Utility 1 for 100 dollars, 0 for nothing; confidences", doubt)
print(urn.rank(acts, doubt), "\n")
value = {name[0]: urn.value(act, doubt) for name, act in acts.items()}
assert value["A"] > value["B"]
assert value["D"] > value["C"]

# every belief about the composition, held with full confidence
rng = np.random.default_rng(0)
both = 0
for weights in rng.dirichlet(np.full(len(blacks), 0.5), size=500):
    belief = {
        path: p * weights[blacks.index(int(path[0].split()[0]))] for path, p in reference.items()
    }
    trusting = EventTree(belief, urn.stages)
    v = {n[0]: trusting.value(a, dict.fromkeys(urn.stages, np.inf)) for n, a in acts.items()}
    both += v["A"] > v["B"] + 1e-12 and v["D"] > v["C"] + 1e-12
print(f"expected-utility agents among 500 beliefs that prefer both A to B and D to C: {both}")
assert both == 0

simple = EventTree(
    {path: p for path, p in reference.items() if path[0] in ("0 black", "60 black")},
    stages=urn.stages,
)
axis = plot_event_tree(simple, acts["B: black"], doubt)
axis.figure.savefig("ellsberg.png", dpi=150)
print("wrote ellsberg.png")
