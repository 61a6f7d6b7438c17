"""The turns of inputs and neurons, by counted progress: the same on every machine.

Both are measured by the *open share* of a question's tree: each half of a node has half of its share, whether an input or a sign is
split, and closed nodes have none. A search that makes progress halves it in twice as many nodes; one that does not will not end.

    boxes        come first. At 1,000 boxes, and at every doubling, neurons have a turn if the open share has not halved since the
                 last time (since the whole box, at first), and if all their programs, with those of this turn, take no longer than
                 PART of the boxes so far, by typical costs: nothing is timed
    neurons      get 32 programs, and twice as many with every turn. While every doubling leaves at most SHRINK of the open share
                 they continue in the same turn. Either search continues where it stopped
"""

from __future__ import annotations

from dataclasses import replace

from encoders.bounds.regions import RegionBounds
from encoders.bounds.twin import Twin
from encoders.domain import Regions
from encoders.problem import TwinProblem

FIRST, AGAIN = 1000, 2
"""Boxes of a question after which neurons may have a turn for the first time, and how many times as many for the next."""
STALLED = 0.5
"""Boxes progress too slowly if a doubling of them leaves more than this of the open share."""
TRIAL = 32
"""Linear programs in the first turn of neurons."""
SHRINK = 2 / 3
"""The most of the open share that a doubling of programs may leave."""
PART = 1 / 2
PROGRAM, BY_NEURONS = 3e-3, 8e-9
"""Typical seconds of a program: a constant, and a factor of the cube of its unstable neurons."""
BOX, BY_WEIGHTS = 5e-5, 1e-8
"""Typical seconds of a box: a constant, and a factor of the network's weights."""


def stalled(before: float, now: float) -> bool:
    """Return True if too much of the share `before`, open at half as many boxes, is still open `now`."""
    return now > STALLED * before


def seconds_a_program(problem: TwinProblem, question: int) -> float:
    """Return the typical seconds of a linear program of a question."""
    twin = Twin.of(_alone(problem, question))
    batch = twin.problem.batch
    root = Regions.whole(batch.lower[0], batch.upper[0], 2 * sum(problem.network.layered("neuron branching").hidden))
    unstable = 0
    for bounds in RegionBounds(twin, root).layers[:-1]:
        first, second = (bounds.lower < 0) & (bounds.upper > 0), (bounds.lower_prime < 0) & (bounds.upper_prime > 0)
        unstable += int((first | second).sum())
    return PROGRAM + BY_NEURONS * unstable**3


def affordable(problem: TwinProblem, programs: float, boxes: int) -> bool:
    """Return True if programs of so many seconds in all take little compared with so many boxes of a question."""
    return programs <= PART * boxes * (BOX + BY_WEIGHTS * problem.network.work)


def _alone(problem: TwinProblem, question: int) -> TwinProblem:
    return replace(problem, batch=problem.batch.take([question]))


class Shrinking:
    """The rule that ends turns of neuron branching without progress.   programs: the number at which progress is measured next."""

    def __init__(self) -> None:
        self._share, self.programs = 1.0, TRIAL

    def goes_on(self, share: float) -> bool:
        """Return True if the turn goes on, as `share` is small enough; also double `programs`, in this turn or for the next."""
        previous, self._share = self._share, share
        self.programs *= 2
        return share <= SHRINK * previous
