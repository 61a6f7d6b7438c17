"""The search behind `maximise`: the largest probability (or logit) gap over a box, a point below and a certified bound above.

It starts with an attack (`attack`). Then two searches take turns, each with bounds of its own: cutting boxes of inputs
(`gap.inputs`) and splitting signs of neurons (`gap.neurons`). A turn goes to the one whose bound would be smaller in the end if it
came down as fast as lately; every PERIOD turns to the other one.
Sound? yes: the certificate claims "gap <= upper", which `check` re-proves in ball arithmetic.  Complete? yes, to the tolerance,
given time.
Reference: HyFair, section III-A, maximises |F(x, z) - F(x, z')| by MILP; corrects it: probabilities are never linear in logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoders.arrays import Array
from encoders.evaluate import seconds_exactly
from encoders.probability.logistic import SMALLEST
from encoders.problem import TwinProblem
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.tree import Tree
from verifair.engine.gap.inputs import InputSearch
from verifair.engine.gap.neurons import PhaseSearch
from verifair.engine.search.branch_and_bound import seconds_a_box
from verifair.engine.search.signs.region_lp import seconds_a_region
from verifair.engine.search.subdivision import subdivide
from verifair.interrupts import noted_interrupt

FIRST_LOOK, TURN, PROOFS = 0.04, 0.02, 0.08
"""Shares of the time for the attack at the start, for a turn, and (at least) for the proofs at the end."""
PERIOD = 6
"""One in so many turns goes to the search that is behind."""
ATTACK = 0.1
"""Share of a turn for another attack."""
SHORTEST, LONGEST, REPORTED = 0.05, 10.0, 0.25
"""Seconds of a turn, and between reports of progress."""
FORGET = 0.7
"""Weight of the older rate of progress beside the last one."""

OutOf = Literal["time", "nodes", "float", "interrupted"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme:
    """The state of a search for the largest gap: a bound, and the best point (raw x (V,), its question and direction).

    evidence: [question][direction] proofs that the gap is at most `claim`, 0 a fall and 1 a rise; empty if the claim is trivial.
    by_neurons: True if some of them are from neuron branching.
    out_of: what the search ran out of, if the bound is not within the tolerance.
    """

    upper: float
    claim: float
    value: float
    question: int
    direction: int
    point: Array
    evidence: list[list[Tree]]
    by_neurons: bool
    nodes: int
    out_of: OutOf


def largest_gap(
    problem: TwinProblem, *, logit: bool, tolerance: float, spare: float, budget: Budget, jobs: int,
    progress: Callable[[float, float], None] | None,
) -> Extreme:
    """Bracket the largest gap over all questions of a problem, whatever its goals. progress is called with (witness, bound).

    tolerance: by which bounds may exceed the best point.   spare: by which the certificate claims less.   jobs: as in
    `InputSearch`. Ctrl-C ends it early, with the bounds so far.
    """
    seconds, limit = budget.seconds, budget.nodes if budget.nodes is not None else 1 << 62
    with noted_interrupt(deferred=True) as interrupted, np.errstate(all="ignore"):  # overflow proves nothing
        last = min(max(PROOFS * seconds, seconds_exactly(problem.network)), seconds / 2)
        end = clock.now() + seconds - last
        inputs = InputSearch(problem, logit, tolerance, np.random.default_rng(budget.seed), jobs)
        search = _GapSearch(inputs, spare, end, limit, progress)
        inputs.deadline = end
        turn = float(np.clip(TURN * seconds, SHORTEST, LONGEST))
        inputs.attack(min(FIRST_LOOK * seconds, LONGEST))
        inputs.begin(lambda: search.over or interrupted())
        while not (search.closed or search.over or interrupted()):
            if not search.take_turn(min(end, clock.now() + turn), interrupted):
                break  # neither can continue: float64 cannot be split further
            if not (search.closed or search.over):
                inputs.attack(ATTACK * turn)
        out_of: OutOf = "interrupted" if interrupted() else "nodes" if search.nodes >= limit else "time" if search.over else "float"
        upper, evidence, by_neurons = search.proofs()
    return Extreme(
        upper=upper, claim=upper + spare, value=inputs.value, question=inputs.where[0], direction=inputs.where[1],
        point=inputs.point, evidence=evidence, by_neurons=by_neurons, nodes=search.nodes, out_of=out_of,
    )


class _Pace:
    """The rate at which a bound comes down. spent: seconds that its search has had."""

    def __init__(self) -> None:
        self.spent, self.rate = 0.0, np.inf
        self.last: tuple[float, float] | None = None  # seconds spent, and the log of the distance to the best point

    def note(self, seconds: float, left: float) -> None:
        self.spent += seconds
        log_gap = float(np.log(np.clip(left, 1e-12, 1e300)))
        if self.last is not None and self.spent > self.last[0]:
            current = max(self.last[1] - log_gap, 0.0) / (self.spent - self.last[0])
            self.rate = current if np.isinf(self.rate) else FORGET * self.rate + (1 - FORGET) * current
        self.last = self.spent, log_gap

    def forecast(self, seconds: float) -> float:
        """Return the log of the expected distance to the best point after so many more seconds; -inf before two turns."""
        return -np.inf if self.last is None or np.isinf(self.rate) else self.last[1] - self.rate * seconds


class _GapSearch:
    """Both searches (inputs and neurons), which take turns."""

    def __init__(
        self, inputs: InputSearch, spare: float, end: float, most: int, progress: Callable[[float, float], None] | None
    ) -> None:
        self.inputs, self.spare, self.end, self.most, self.progress = inputs, spare, end, most, progress
        self.phases: dict[tuple[int, int], PhaseSearch] = {}
        self.of_inputs, self.of_phases = _Pace(), _Pace()
        self.turns = 0
        self.cost = seconds_a_box(inputs.problem.network)

    @property
    def nodes(self) -> int:
        return self.inputs.nodes + sum(phase.nodes for phase in self.phases.values())

    @property
    def over(self) -> bool:
        return clock.now() >= self.end or self.nodes >= self.most

    @property
    def closed(self) -> bool:
        return self.upper <= self.inputs.known

    @property
    def upper(self) -> float:
        return float(self._bounds().max())

    def _bounds(self) -> Array:
        """Return (Q, 2) the smaller bounds of both searches."""
        bounds = self.inputs.bounds()
        for key, phase in self.phases.items():
            bounds[key] = min(bounds[key], phase.bound)
        return bounds

    def take_turn(self, until: float, interrupted: Callable[[], bool]) -> bool:
        """Let one of the two searches run until then; return False if neither can."""
        worst = self._worst()
        if worst is None and self.inputs.finished:
            return False
        left = self.end - clock.now()
        phases_lead = self.of_phases.forecast(left) < self.of_inputs.forecast(left)
        phases = not phases_lead if self.turns % PERIOD == PERIOD - 1 else phases_lead or self.turns == 1
        self.turns += 1
        if worst is None or not (phases or self.inputs.finished):
            self._cut(until, interrupted)
        else:
            self._split(worst, until, interrupted)
        return True

    def _cut(self, until: float, interrupted: Callable[[], bool]) -> None:
        started = reported = clock.now()

        def ended() -> bool:
            nonlocal reported
            reported = self._report(reported)
            return clock.now() >= until or self.nodes >= self.most or interrupted()

        self.cost = subdivide(self.inputs, self.inputs.step, ended=ended, deadline=self.end, cost=self.cost)
        self.of_inputs.note(clock.now() - started, float(self.inputs.bounds().max()) - self.inputs.known)

    def _split(self, key: tuple[int, int], until: float, interrupted: Callable[[], bool]) -> None:
        started = reported = clock.now()
        if key not in self.phases:
            self.phases[key] = PhaseSearch(self.inputs, *key, self.spare)
        phase = self.phases[key]
        while not phase.finished and clock.now() < until and self.nodes < self.most and not interrupted():
            phase.run(min(until, reported + REPORTED), self.most - self.nodes + phase.nodes)
            reported = self._report(reported)
        self.inputs.taken[key] = phase.bound <= self.inputs.known
        self.of_phases.note(clock.now() - started, min(phase.bound, self.inputs.trivial) - self.inputs.known)

    def _report(self, reported: float) -> float:
        """Report progress if it is time; return the time of the last report."""
        if clock.now() < reported + REPORTED:
            return reported
        if self.progress is not None:
            self.progress(self.inputs.value, self.upper)
        return clock.now()

    def _worst(self) -> tuple[int, int] | None:
        """Return the question and direction with the largest bound that neuron branching may lower in the time left, or None."""
        if self.end - clock.now() < seconds_a_region(self.inputs.problem.network.layered("neuron branching")):
            return None
        bounds = self._bounds()
        for key, phase in self.phases.items():
            if phase.finished:
                bounds[key] = -np.inf
        if any(phase.slow for phase in self.phases.values()):  # new ones would be slow, too
            bounds[[[(q, d) not in self.phases for d in (0, 1)] for q in range(len(bounds))]] = -np.inf
        q, d = (int(k) for k in np.unravel_index(bounds.argmax(), bounds.shape))
        return (q, d) if bounds[q, d] > self.inputs.known else None

    def proofs(self) -> tuple[float, list[list[Tree]], bool]:
        """Return the least bound that all trees prove, with proofs of that plus `spare` (none if it is trivial), and True if some
        are from neuron branching."""
        of_inputs, upper = self.inputs.bounds(), max(self.upper, self.inputs.known)
        while True:
            claim = upper + self.spare
            if not np.isfinite(upper) or (not self.inputs.logit and claim > 1 - SMALLEST):
                return float(upper), [], False
            needed = [(int(q), int(d)) for q, d in np.argwhere(of_inputs > upper)]
            claims = {key: self.phases[key].least_claim(claim) for key in needed}
            larger = [min(value - self.spare, of_inputs[key]) for key, value in claims.items() if value > claim]
            if not larger:
                proved = {key: self.phases[key].proof(claim) for key in needed}
                trees = {key: tree for key, tree in proved.items() if tree is not None}
                larger = [of_inputs[key] for key in needed if key not in trees]
            if not larger:
                break
            upper = max(float(np.nextafter(upper, np.inf)), *larger)
        for d in (0, 1):
            cut = np.flatnonzero(of_inputs[:, d] <= upper)
            trees |= dict(zip([(q, d) for q in cut.tolist()], self.inputs.proofs(cut, d, upper, claim), strict=True))
        return float(upper), [[trees[q, d] for d in (0, 1)] for q in range(len(of_inputs))], bool(needed)
