"""Nodes for many integrals at once, against closed forms: narrow, far, kinked and empty rows."""

import numpy as np
import pytest

from soubayes.exact.quadrature import Line, place_nodes


def integrals(log_density, n, tolerance=1e-10, reach=50.0):
    """The integral of exp(g) in every row, and the nodes; g is a function of (rows, y)."""

    def evaluate(rows, y):
        g = log_density(rows[:, None], y)
        return g, -g

    line = Line(np.zeros(n), np.ones(n), np.full(n, -reach), np.full(n, reach))
    nodes = place_nodes(evaluate, line, tolerance)
    g = evaluate(nodes.row, nodes.y[:, None])[0][:, 0]
    total = np.zeros(n)
    np.add.at(total, nodes.row, np.exp(g + nodes.log_step))
    return total, nodes


def test_normal_densities_of_very_different_widths_and_places():
    mean = np.array([0.0, 0.3, -20.0, 7.0])
    sd = np.array([1.0, 1e-5, 0.2, 3.0])
    total, nodes = integrals(lambda r, y: -0.5 * ((y - mean[r]) / sd[r]) ** 2, 4)
    assert total / (sd * np.sqrt(2 * np.pi)) == pytest.approx(1.0, abs=1e-8)
    assert not nodes.at_edge.any()
    assert not nodes.empty.any()
    assert (np.diff(nodes.row) >= 0).all()


def test_a_kink_and_a_jump():
    def log_density(r, y):
        return np.where(r == 0, -5.0 * np.abs(y - 0.3), np.where(y > 1.0, -y, -np.inf))

    total, nodes = integrals(log_density, 2)
    assert total == pytest.approx([2 / 5, np.exp(-1.0)], rel=1e-9)
    assert (nodes.error == 0).all()


@pytest.mark.parametrize("kink", [1e-9, 1e-6, 1e-4, 1e-3, 3e-3, 0.01, 0.1])
def test_a_kink_beside_the_end_of_a_panel_is_seen(kink):
    """Panels meet near the median: of exp(-5 |y|) with a step of the slope beside it, say."""

    def log_density(r, y):
        return -5.0 * np.abs(y - kink) - 1e-3 * y

    exact = np.exp(-1e-3 * kink) * (1 / (5 + 1e-3) + 1 / (5 - 1e-3))
    total, _ = integrals(log_density, 1)
    assert total[0] == pytest.approx(exact, rel=1e-9)


def test_rows_without_mass_and_mass_at_the_edge_are_reported():
    def log_density(r, y):
        return np.where(r == 0, -np.inf, np.where(r == 1, y, -0.5 * y**2))

    total, nodes = integrals(log_density, 3, reach=4.0)
    assert list(nodes.empty) == [True, False, False]
    assert list(nodes.at_edge)[1]
    assert total[0] == 0.0
