"""Partitioned certification (Fairify): decide every part of a box, and keep verdicts and proofs in a store.

Reads top to bottom: the parts are taken in chunks, by several processes at once. Each chunk is decided by batched branch-and-bound
on the inputs; questions left open by neuron branching; those still open by more branch-and-bound. A part is PROVED when all its
pairs of copies are, in both directions, and VIOLATED as soon as one has an exact witness.
Sound? yes, every proof goes into the store and `check` re-proves it.   Complete? yes, within time and boxes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from encoders.arrays import Array, Booleans, Integers
from encoders.model import Model
from encoders.onnx.runtime import Replay
from encoders.problem import TwinProblem
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.tree import Tree
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk, Partition, PartitionStore
from verifair.checker.report import Progress
from verifair.engine.answer import runtime_agrees
from verifair.engine.parallel import Deadline, Shared, as_done
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of, goals_of, twin_problem
from verifair.engine.search import open_goals
from verifair.engine.search.branch_and_bound import decide, ready_at_once
from verifair.engine.search.signs.neurons import decide_by_phases
from verifair.engine.search.standard import DEEP
from verifair.engine.verdict import Reason, Status
from verifair.errors import QueryError

QUESTIONS = 2048
"""Questions of a chunk, about: enough for BLAS, and few enough to lose little."""
CHUNKS = 16
"""The fewest chunks for networks of DEEP hidden layers: some of their parts take a hundred times as long as others, and processes
share chunks. For other networks small chunks take longer in all."""
FIRST, FIRST_DEEP = 400, 64_000
"""Boxes of a question before neuron branching tries it. In networks of DEEP hidden layers its 400 regions take as long as 16,000
boxes, and boxes decide nearly all questions, some after 20,000; boxes after neuron branching start from the beginning."""
PHASE_NODES = 400
MAX_NODES, MAX_NODES_OF_TREES = 100_000, 20_000_000
"""The most boxes of a question. For trees a box takes microseconds, and no other method decides questions left open."""
REASONS = tuple(Reason)


@dataclass(frozen=True, kw_only=True)
class PartitionRun:
    """The data that all chunks of a run share: the query, its partition, and the limits of each chunk."""

    query: IndividualFairness
    partition: Partition
    pairs: Pairs
    max_nodes: int
    seed: int
    replay: Replay | None


def certify_partition(
    query: IndividualFairness, *, size: int, store: str | Path, resume: bool = False, budget: Budget | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Decide every part of the query's box, and keep verdicts and proofs in a store (SQLite); `partition_summary` reads it.

    size: number of values in a block; parts are the products of blocks.   budget: seconds for the whole run, boxes (nodes) for each
    question.   resume: continue the run in the store.   progress: called with (parts done, all parts).
    Chunks of neighbouring parts are taken in a random order (by seed): a run that ends early is no uniform sample of all parts.
    Returns: the path of the store. Raises QueryError for a size below 2, DataError for a store of another question.
    Sound? yes: `check` re-proves the store.   Complete? within the budget.   Reference: Fairify (Biswas and Rajan, ICSE 2023).
    """
    query.require_favourable("a partition")
    query.require_shifts("a partition")
    if size < 2:
        raise QueryError(f"partition size = {size}: expected at least 2 values a block")
    budget = budget or Budget()
    box = box_of(query.schema, query.box)
    partition = partition_of(query, size, box)
    if partition.count > 1 << 60:
        raise QueryError(f"partition size = {size} makes {partition.count:.1e} parts; choose a larger one, or narrow --box")
    pairs = Pairs.of(query, *box)
    deadline = Deadline.after(budget.seconds)
    max_nodes = MAX_NODES_OF_TREES if query.model.of_trees else MAX_NODES
    task = PartitionRun(
        query=query, partition=partition, pairs=pairs, max_nodes=budget.nodes or max_nodes, seed=budget.seed,
        replay=Replay.of(query.model),
    )
    shared = Shared(value=task)
    description = describe(query, size, box)
    with PartitionStore(store, description, resume=resume) as parts:
        count, finished = partition.count, {k: len(status) for k, status in parts.statuses() if (status != UNKNOWN).all()}
        done = sum(finished.values())
        if progress is not None:
            progress(done, count)
        work = (
            joblib.delayed(_decide_chunk)(shared, first, size, deadline)
            for first, size in _order(count, description["step"], budget.seed, deadline)
            if first not in finished
        )
        for chunk in as_done(work, jobs):
            if chunk is None:
                continue
            parts.add(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, count)
    return Path(store)


def _order(count: int, step: int, seed: int, deadline: Deadline) -> Iterator[tuple[int, int]]:
    """Yield (first, size) of all chunks of `step` parts until the deadline, in a pseudo-random order that takes no memory:
    k -> a k + b modulo their number, with a coprime to it."""
    chunks = -(-count // step)
    rng = np.random.default_rng(seed)
    a, b = (int(rng.integers(1, chunks + 1)) for _ in range(2))
    while math.gcd(a, chunks) > 1:
        a += 1
    for k in range(chunks):
        if deadline.left() < 0:
            return
        first = (a * k + b) % chunks * step
        yield first, min(step, count - first)


def partition_of(query: IndividualFairness, size: int, box: tuple[Array, Array]) -> Partition:
    """Return the partition of the query's box, `size` values a block; protected features are not cut."""
    return Partition.of(query.schema.domain, *box, size=size, whole=[query.schema.index(name) for name in query.protected])


def describe(query: IndividualFairness, size: int, box: tuple[Array, Array]) -> dict[str, Any]:
    """Return all data that determine the answers in a store, and the number of parts in a chunk (`step`)."""
    names, parts = [feature.name for feature in query.schema.features], partition_of(query, size, box).count
    return {
        "network_sha256": query.model.source_sha256,
        "output": query.model.output,
        "rounded": list(query.model.rounded),
        "schema_sha256": query.schema.sha256,
        "protected": list(query.protected),
        "box": {name: [float(low), float(high)] for name, low, high in zip(names, *box, strict=True)},
        "differ": query.differ,
        "arithmetic": query.arithmetic,
        "epsilon": query.epsilon,
        "scale": query.scale,
        "signs": query.rule,
        "relax": {name: int(width) for name, width in query.relax.items()},
        "size": size,
        "parts": parts,
        "step": max(1, min(QUESTIONS // len(Pairs.of(query, *box)), -(-parts // CHUNKS) if _deep(query.model) else parts)),
    }


def _decide_chunk(shared: Shared[PartitionRun], first: int, count: int, deadline: Deadline) -> Chunk | None:
    """Decide parts first ... first + count - 1. Return None if it begins after the deadline: they are not reached."""
    if deadline.left() < 0:
        return None
    started = clock.now()
    task = shared.value
    query = task.query
    if task.replay is not None:
        task.replay.open()
    with threadpool_limits(limits=1):
        lower, upper = task.partition.boxes(np.arange(first, first + count))
        batch, part, pair = task.pairs.batch(query.schema.domain, lower, upper, (task.partition.lower, task.partition.upper))
        problem = twin_problem(query, batch, goals_of(query))
        chunk = _Chunk(task, deadline, problem, part, pair, count)
        chunk.decide()
        return chunk.result(first, clock.now() - started)


class _Chunk:
    """The state of one chunk: the questions of its parts, and their answers so far."""

    def __init__(
        self, task: PartitionRun, deadline: Deadline, problem: TwinProblem, part: Integers, pair: Integers, count: int
    ) -> None:
        self.task, self.deadline, self.problem, self.part, self.pair = task, deadline, problem, part, pair
        self.status = np.zeros(count, dtype=np.int8)
        self.reason = np.full(count, -1, dtype=np.int8)
        self.nodes = 0
        self.trees: dict[int, list[Tree]] = {}  # by question: the trees of its goals
        self.float32 = np.zeros(len(part), dtype=bool)  # by question: its proof is certified for float32
        self.short = np.zeros(len(part), dtype=bool)  # by question: no proof can be certified
        self.witnesses: dict[int, tuple[int, int, Array, Array]] = {}  # by part: question, goal, x, margins

    def decide(self) -> None:
        first = FIRST_DEEP if _deep(self.problem.network) else FIRST
        first = self.task.max_nodes if self.problem.network.of_trees else first
        self._by_inputs(np.arange(len(self.part)), first)
        left = self._open_questions()
        if len(left):
            self._by_neurons(left)
            left = self._open_questions()
        if len(left) and self.task.max_nodes > first and self.deadline.left() > 0:
            self._by_inputs(left, self.task.max_nodes)

    def _unproved(self) -> Booleans:
        """Return (Q,) True for questions without a proof."""
        return np.array([q not in self.trees for q in range(len(self.part))], dtype=bool)

    def _open_questions(self) -> Integers:
        """Return the questions without a proof, of parts that are not refuted."""
        return np.flatnonzero(self._unproved() & ~self.short & (self.status[self.part] != VIOLATED))

    def _by_inputs(self, questions: Integers, max_nodes: int) -> None:
        """Decide questions as long as there is time, as many at once as can be prepared in half of the time left."""
        while len(questions):
            left = self.deadline.left()
            if left <= 0:
                self.reason[self.part[questions]] = REASONS.index(Reason.TIME)
                return
            at_once = ready_at_once(self.problem.network, left)
            self._together(questions[:at_once], max_nodes)
            questions = questions[at_once:]

    def _together(self, questions: Integers, max_nodes: int) -> None:
        problem = replace(self.problem, batch=self.problem.batch.take(questions))
        decision = decide(
            problem, seconds=self.deadline.left(), max_nodes=min(max_nodes, self.task.max_nodes),
            group=self.part[questions], seed=self.task.seed,
        )
        self.nodes += int(decision.nodes.sum())
        proved = np.flatnonzero((decision.status == open_goals.PROVED).all(axis=1))
        trees = zip(*(decision.trees.of_goal(proved, goal) for goal in range(len(problem.goals))), strict=True)
        self.trees.update(zip(questions[proved].tolist(), map(list, trees), strict=True))
        self.float32[questions[proved]] = decision.float32[proved].all(axis=1)
        for k, goal in zip(*np.nonzero(decision.status == open_goals.VIOLATED), strict=True):
            self._refute(int(questions[k]), int(goal), decision.witness[k, goal], decision.margins[k, goal])
        reasons = {"time": Reason.TIME, "nodes": Reason.NODES}
        short = (decision.status == open_goals.SHORT).any(axis=1)
        self.short[questions] |= short
        for k in np.flatnonzero(self._settle()[questions]):
            self.reason[self.part[questions[k]]] = REASONS.index(
                Reason.FLOAT32 if short[k] else reasons.get(decision.out_of[k], Reason.NUMERICAL)
            )

    def _settle(self) -> Booleans:
        """Mark parts as proved if all their questions are; return (Q,) True for questions without a proof."""
        unproved = self._unproved()
        left = np.zeros(len(self.status), dtype=bool)
        left[self.part[unproved]] = True
        self.status[(self.status == UNKNOWN) & ~left] = PROVED
        return unproved

    def _refute(self, question: int, goal: int, x: Array, margins: Array) -> None:
        part = int(self.part[question])
        self.status[part] = VIOLATED
        self.witnesses.setdefault(part, (question, goal, x, margins))

    def _by_neurons(self, questions: Integers) -> None:
        """Try neuron branching for one question after the other, in both directions: each gets a proof, a witness, or neither."""
        for q in questions.tolist() if "lp" in self.problem.network.programs else []:
            if self.status[self.part[q]] == VIOLATED:
                continue
            trees, float32 = [], True
            for goal in range(len(self.problem.goals)):
                seconds = self.deadline.left()
                if seconds <= 0:
                    return
                answer = decide_by_phases(self.problem, q, goal, seconds=seconds, max_nodes=PHASE_NODES)
                self.nodes += answer.nodes
                if answer.status is Status.VIOLATED and answer.witness is not None and answer.margins is not None:
                    self._refute(q, goal, answer.witness, np.array(answer.margins))
                if answer.tree is None:
                    break
                trees.append(answer.tree)
                float32 = float32 and answer.float32
            if len(trees) == len(self.problem.goals):
                self.trees[q], self.float32[q] = trees, float32
        self._settle()

    def _certified(self) -> npt.NDArray[np.int8]:
        """Return (P,) 1 for parts all of whose proofs are certified for float32."""
        certified = self.status == PROVED
        certified[self.part[~self.float32]] = False
        return np.asarray(certified, dtype=np.int8)

    def result(self, first: int, seconds: float) -> Chunk:
        proved = [q for q in range(len(self.part)) if self.status[self.part[q]] == PROVED]
        trees = [tree for q in proved for tree in self.trees[q]]
        witnesses = [self.witnesses[part] for part in sorted(self.witnesses)]
        question = np.array([q for q, _, _, _ in witnesses], dtype=np.int64)
        x = np.array([x for _, _, x, _ in witnesses]).reshape(len(witnesses), self.problem.domain.variables)
        goal = np.array([g for _, g, _, _ in witnesses], dtype=np.int64)
        return Chunk(
            first=first, status=self.status, reason=np.where(self.status == UNKNOWN, self.reason, -1).astype(np.int8),
            size=np.array([len(tree.feature) for tree in trees], dtype=np.int64),
            feature=_joined([tree.feature for tree in trees]), cut=_joined([tree.cut for tree in trees]).astype(np.float64),
            count=_joined([np.diff(tree.start) for tree in trees]), index=_joined([tree.index for tree in trees]),
            value=_joined([tree.value for tree in trees]).astype(np.float64), pair=self.pair[question], goal=goal, x=x,
            margins=np.array([m for _, _, _, m in witnesses]).reshape(len(witnesses), 2), float32=self._certified(),
            agrees=runtime_agrees(self.problem, question, goal, x), nodes=self.nodes, seconds=seconds,
        )


def _deep(network: Model) -> bool:
    return len(network.hidden) >= DEEP


def _joined(parts: list[Any]) -> Any:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]) if parts else np.empty(0, dtype=np.int64)


def run_key(about: dict[str, Any]) -> str:
    """Return a short hash of what a store is about, for its default name."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
