"""The proof that neuron branching leaves behind, as arrays: how a box was cut up, and the multipliers that prove each leaf."""

from __future__ import annotations

from dataclasses import dataclass

from encoders.network import Array, Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseTree:
    """Preorder arrays over all K nodes (parent, first subtree, second subtree), and the leaves' multipliers in CSR form.

    feature: (K,)  -1         a leaf;
                   v >= 0     a split of raw variable v at `cut`: [lower, cut] and [cut + 1, upper] for integer and categorical
                              variables, [cut, upper] for real ones;
                   -2 - n     a split of hidden neuron n: a <= 0 (inactive) first, a >= 0 (active) second.
    cut: (K,) 0 where the node is no split of a raw variable.
    start: (K + 1,), index: (M,), value: (M,): node k has the multipliers value[i] of index[i], start[k] <= i < start[k + 1].

    With H hidden neurons, counted layer by layer, n = 0 ... H - 1 are those of copy x and H ... 2 H - 1 those of copy x'. An index
    n < 2 H is the slope of a linear function of the pre-activation of neuron n (left out: a default), 2 H + r the weight of the
    goal's row r (left out: 0), 2 H + R the slope of a line that takes the place of all R rows in this leaf. What they prove is said
    in `check_phase_bounds`.
    """

    feature: Integers
    cut: Array
    start: Integers
    index: Integers
    value: Array
