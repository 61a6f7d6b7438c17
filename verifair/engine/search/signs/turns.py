"""The turns of inputs and neurons, by counted progress: the same on every machine.

The measure of both is the *open share* of a question's tree: a half of a node, of a box or of a sign, counts for half of what is
halved, and what is closed counts no more. A search that gets on halves it in twice as many nodes; one that does not will not end.

    boxes        every question begins with them. At 1,000 boxes, and at every doubling, neurons have a turn where the open share
                 has not halved since the last time (since the whole box, at first), and where all programs that they have had
                 and get now take no longer than PART of the boxes so far, by what they cost mostly: nothing is timed
    neurons      get 32 programs, and twice as many with every turn. While every doubling leaves at most SHRINK of the open share
                 they go on in the same turn. Either search goes on where it stopped
"""

from __future__ import annotations

from dataclasses import replace

from encoders.bounds.regions import RegionBounds
from encoders.bounds.twin import Twin
from encoders.domain import Regions
from encoders.network import layered
from encoders.problem import TwinProblem

FIRST, AGAIN = 1000, 2
"""Boxes of a question after which neurons may have a turn for the first time, and how many times as many for the next."""
STALLED = 0.5
"""Of an open share that is left after a doubling of boxes: more of it, and boxes get on too slowly."""
TRIAL = 32
"""Linear programs of the first turn of neurons."""
SHRINK = 2 / 3
"""Of an open share that a doubling of programs may leave."""
PART = 1 / 2
PROGRAM, BY_NEURONS = 3e-3, 8e-9
"""Seconds that a program takes mostly: at least, and times the cube of its open neurons."""
BOX, BY_WEIGHTS = 5e-5, 1e-8
"""... and a box: at least, and times the network's weights."""


def stalled(before: float, now: float) -> bool:
    """Return whether boxes have left too much of the share of a question that was open half as many boxes ago."""
    return now > STALLED * before


def seconds_a_program(problem: TwinProblem, question: int) -> float:
    """Return what a program of a question takes mostly."""
    twin = Twin.of(_alone(problem, question))
    batch = twin.problem.batch
    whole = Regions.whole(batch.lower[0], batch.upper[0], 2 * sum(layered(problem.network, "neuron branching").hidden))
    loose = 0
    for bounds in RegionBounds(twin, whole).layers[:-1]:
        first, second = (bounds.lower < 0) & (bounds.upper > 0), (bounds.lower_prime < 0) & (bounds.upper_prime > 0)
        loose += int((first | second).sum())
    return PROGRAM + BY_NEURONS * loose**3


def affordable(problem: TwinProblem, programs: float, boxes: int) -> bool:
    """Return whether programs of so many seconds take little beside so many boxes of a question."""
    return programs <= PART * boxes * (BOX + BY_WEIGHTS * problem.network.work)


def _alone(problem: TwinProblem, question: int) -> TwinProblem:
    return replace(problem, batch=problem.batch.take([question]))


class Shrinking:
    """Whether neuron branching gets on.   programs: at which its turn ends, unless it does."""

    def __init__(self) -> None:
        self._share, self.programs = 1.0, TRIAL

    def goes_on(self, share: float) -> bool:
        """Return whether to go on after so many programs, `share` being open; else, how long the next turn is, is known."""
        before, self._share = self._share, share
        self.programs *= 2
        return share <= SHRINK * before
