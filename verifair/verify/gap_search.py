"""The search behind `maximise`: the largest probability (or logit) gap over a box, a point below and a certified bound above.

An attack opens it (`attack`); then boxes are cut, those with the largest bounds first (`gap_inputs`), and neuron branching
proves smaller and smaller bounds over a coarse partition into boxes (`gap_phases`). The two take turns.
Sound? yes: the certificate claims "gap <= upper", which `check` re-proves in ball arithmetic.  Complete? yes, to the tolerance,
given time.
Reference: HyFair, section III-A, maximises |F(x, z) - F(x, z')| by MILP; corrects it: probabilities are never linear in logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoders.network import Array
from encoders.problem import TwinProblem
from verifair.verify.certificate import Tree
from verifair.verify.gap_inputs import InputSearch
from verifair.verify.gap_phases import PhaseProofs
from verifair.verify.phase_tree import PhaseTree

FIRST_LOOK = 0.04
"""Share of the time for the attack that opens the search, and for the first boxes."""
FIRST_TRY = 0.08
"""Share of the time for the first attempt by neuron branching."""
LAST = 0.05
"""Share of the time kept for proofs to be brought to the same bound."""
GROWTH = 1.5
"""Of the time for an attempt that failed."""
TOLD = 0.25
"""Seconds between reports of progress."""
ANEW = 0.15
"""Share of a turn for another attack."""
WAIT = 1.5
"""Turns of the input search after an attempt that failed, as multiples of its time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme:
    """What was found of the largest gap: a bound on it, and the best point met (raw x (V,), its question and direction).

    evidence: [question][direction] proofs that the gap is at most `claim`, 0 a fall and 1 a rise; empty where that says nothing.
    """

    upper: float
    claim: float
    value: float
    question: int
    direction: int
    point: Array
    evidence: list[list[Tree | PhaseTree]]
    nodes: int
    out_of: str


def largest_gap(
    problem: TwinProblem,
    *,
    logit: bool,
    tolerance: float,
    spare: float,
    seconds: float,
    max_nodes: int | None = None,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> Extreme:
    """Bracket the largest gap over all questions of a problem, whatever its goals. progress is told (witness, bound).

    tolerance: what bounds may exceed the best point by.   spare: what the certificate claims less.
    """
    started = time.monotonic()
    inputs = InputSearch(problem, logit, tolerance, np.random.default_rng(seed))
    inputs.attack(FIRST_LOOK * seconds)
    inputs.begin()
    most = max_nodes if max_nodes is not None else 1 << 62
    proofs = PhaseProofs(inputs, spare)
    end = started + (1 - LAST) * seconds
    patience, turn = FIRST_TRY * seconds, FIRST_LOOK * seconds
    while not _closed(inputs, proofs) and time.monotonic() < end and inputs.nodes + proofs.nodes < most:
        until = min(end, time.monotonic() + turn)
        while time.monotonic() < until and not inputs.finished and inputs.nodes + proofs.nodes < most:
            inputs.run(min(until, time.monotonic() + TOLD), most - proofs.nodes)
            _tell(progress, inputs, proofs)
        if _closed(inputs, proofs) or time.monotonic() >= end:
            continue
        before = time.monotonic()
        if proofs.attempt(patience, end, most - inputs.nodes):
            turn = 0.0
        elif inputs.finished and time.monotonic() < before + patience:
            break  # neither can go on: float64 ends here
        else:
            turn, patience = max(WAIT * (time.monotonic() - before), patience), GROWTH * patience
            inputs.attack(ANEW * turn)
        _tell(progress, inputs, proofs)
    return _extreme(inputs, proofs, started + seconds, most)


def _tell(progress: Callable[[float, float], None] | None, inputs: InputSearch, proofs: PhaseProofs) -> None:
    if progress is not None:
        progress(inputs.value, _upper(inputs, proofs))


def _upper(inputs: InputSearch, proofs: PhaseProofs) -> float:
    return float(np.minimum(inputs.bounds(), proofs.bound).max())


def _closed(inputs: InputSearch, proofs: PhaseProofs) -> bool:
    return _upper(inputs, proofs) <= inputs.known


def _extreme(inputs: InputSearch, proofs: PhaseProofs, deadline: float, most: int) -> Extreme:
    """The proofs of one common bound."""
    upper, of_inputs, stuck = max(_upper(inputs, proofs), inputs.known), inputs.bounds(), inputs.finished
    inputs.close_all()
    larger = [aim for aim in proofs.proved() if aim > upper]
    evidence: list[list[Tree | PhaseTree]] | None = None
    for one in (upper, *larger, float(max(of_inputs.max(), upper))):  # neuron branching may not have proved this very bound
        upper = one
        evidence = _evidence(inputs, proofs, of_inputs, upper, deadline)
        if evidence is not None:
            break
    out_of = ""
    if upper > inputs.known:
        out_of = "nodes" if inputs.nodes + proofs.nodes >= most else "float" if stuck else "time"
    return Extreme(
        upper=upper, claim=upper + proofs.spare, value=inputs.value, question=inputs.where[0], direction=inputs.where[1],
        point=inputs.point, evidence=evidence or [], nodes=inputs.nodes + proofs.nodes, out_of=out_of,
    )  # fmt: skip


def _evidence(
    inputs: InputSearch, proofs: PhaseProofs, of_inputs: Array, upper: float, deadline: float
) -> list[list[Tree | PhaseTree]] | None:
    """[question][direction] proofs of `upper`; None when neuron branching has none; empty when there is nothing to prove."""
    if not np.isfinite(upper) or (not inputs.logit and upper + proofs.spare >= 1):
        return []
    evidence: list[list[Tree | PhaseTree]] = []
    for q in range(len(of_inputs)):
        row: list[Tree | PhaseTree] = []
        for d in (0, 1):
            if of_inputs[q, d] <= upper:
                row.append(inputs.forest.tree(q, d))
                continue
            tree = proofs.at(q, d, upper, deadline)
            if tree is None:
                return None
            row.append(tree)
        evidence.append(row)
    return evidence
