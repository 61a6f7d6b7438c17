"""GroupCounterfactuals: choose counterfactuals for every group of a table. Start reading at `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from encoders.arrays import Array, Booleans, Integers
from encoders.model import Model
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import CentersCertificate
from verifair.errors import DataError, QueryError
from verifair.models.read import read
from verifair.schema.file import Change
from verifair.schema.schema import Schema
from verifair.systems.arguments import audited, check_number, check_order, check_settings, check_table, groups_of, positives
from verifair.systems.estimators import TableEstimator
from verifair.systems.fgce.baselines.ares import ares
from verifair.systems.fgce.baselines.comparison import feasible_share, of_choice
from verifair.systems.fgce.baselines.globe_ce import globe_ce
from verifair.systems.fgce.decider import as_decider, beside, frame_of, positive, words_of
from verifair.systems.fgce.graph.density import edge_weights
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.measures.changes import assignment, binned, change_frequency, change_size
from verifair.systems.fgce.optimum.center import Centers, TooFew, Unfinished, by_components, by_solver, centers, fewest, needed
from verifair.systems.fgce.optimum.cover import Coverage, greedy_coverage, largest_coverage
from verifair.systems.fgce.optimum.proof import certificate
from verifair.systems.fgce.robust import CertifiedRobustness, askable, by_group, certify_robust, prover, re_evaluated
from verifair.systems.fgce.robust_choice import Prove, RobustChoice, robust_choice
from verifair.systems.fgce.settings import Bandwidth, Cost, Factuals, FgceSettings, Method, Weighting
from verifair.systems.fgce.space import Custom, FeatureSpace
from verifair.systems.work import Tell

DEFAULT = FgceSettings()


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A coverage that k counterfactuals cannot reach; they cover as many people as k can.

    asked: number of people to cover.   needed: the fewest counterfactuals that cover everybody; None: not found in time.
    """

    asked: int
    needed: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The answer for one group.

    negatives: nodes to be explained; those in instance.hopeless have no feasible counterfactual.   found: the centers, or with a
    cost limit the coverage.   assigned: (F,) the counterfactual of each factual of the instance, -1 for none.   cost: (F,) its
    cost.   robust: the robust candidates, if only these could be chosen.   short: set if k was too small; `found` is then the
    optimum for the most people that k can cover.
    """

    name: str
    negatives: Integers
    instance: Instance
    found: Centers | Coverage
    assigned: Integers
    cost: Array
    robust: RobustChoice | None = None
    short: Shortage | None = None

    @property
    def coverage(self) -> float:
        """Share of the factuals with a feasible counterfactual that the chosen ones cover."""
        return float((self.assigned >= 0).mean())

    @property
    def used(self) -> Integers:
        """The chosen nodes that are assigned to at least one person."""
        return np.unique(self.assigned[self.assigned >= 0])


class GroupCounterfactuals(TableEstimator):
    """Choose a few counterfactuals for each group: rows that its rejected people can reach, optimally.  (FGCE)

    model: a Network, an estimator whose `predict` takes a DataFrame, or anything else that `verifair.read` takes. Decisions are
    those of `predict`; questions of robustness are about what `read` returns.   schema: of its columns, with `change` for each
    feature. seconds: for each group.   threads: for the graph.   custom: a rule for moves, see `FeatureSpace`.   empty: "skip"
    leaves out groups with nobody to explain, or nobody who can be helped (see `skipped_`).   too_few: "most" covers as many as k
    can if k cannot reach the coverage (see `Group.short`; not with only_robust).   The others are as in `FgceSettings`: the share
    `coverage` of the factuals is covered at the smallest possible cost, or with max_cost as many as possible at that cost.
    Sound? Complete? yes with methods exact and components, given time (`found.optimal`); mip is the solver's claim, greedy a bound.
    Reference: FGCE (Fragkathoulas, Papanikou, Pitoura, Terzi).
    """

    def __init__(
        self, model: Any, schema: Schema, *, k: int = DEFAULT.k, coverage: float = DEFAULT.coverage,
        max_cost: float | None = DEFAULT.max_cost, cost: Cost = DEFAULT.cost, eps: float | None = DEFAULT.eps,
        factuals: Factuals = DEFAULT.factuals, changes: Mapping[str, Change] | None = None, custom: Custom | None = None,
        weighting: Weighting = DEFAULT.weighting, bandwidth: Bandwidth = DEFAULT.bandwidth, method: Method = DEFAULT.method,
        solver: str = DEFAULT.solver, seconds: float = 60.0, threads: int = 2, empty: Literal["error", "skip"] = DEFAULT.empty,
        too_few: Literal["error", "most"] = DEFAULT.too_few, only_robust: float | None = DEFAULT.only_robust,
    ) -> None:
        self.model, self.schema, self.k, self.coverage, self.max_cost, self.cost = model, schema, k, coverage, max_cost, cost
        self.eps, self.factuals, self.changes, self.custom = eps, factuals, changes, custom
        self.weighting, self.bandwidth, self.method, self.solver = weighting, bandwidth, method, solver
        self.seconds, self.threads, self.empty, self.too_few, self.only_robust = seconds, threads, empty, too_few, only_robust

    def fit(
        self, X: pd.DataFrame, y: Any = None, *, sensitive_features: Any = None, audit: Any = None, progress: Tell | None = None
    ) -> GroupCounterfactuals:
        """Build the graph over all rows of X, and choose counterfactuals for each group.

        y: true classes (1 positive, or the label column's own values), needed for false negatives (default: the schema's label
        column in X).   sensitive_features: a column's name, several names, an array or Series (N,), or a DataFrame: one group for
        each value or combination of values (None: a single group).
        audit: (N,) rows whose decisions are to be explained (default: all). Every row may be a step or a counterfactual.

        Sets model_ (makes the decisions), words_ (how the table writes categories), space_, graph_, levels_ (`binned` rows),
        reachability_, positive_ (N,), groups_ (name -> Group), skipped_ (name -> reason), stranded_ (name -> number of people to be
        explained, for groups that are skipped because nobody in them can be helped).
        Raises DataError, QueryError, SchemaError: no negative or positive rows, no feasible counterfactual, k too few (a line for
        each group).
        """
        self._check()
        check_table(X)
        for argument, values in (("y", y), ("sensitive_features", sensitive_features), ("audit", audit)):
            check_order(X, values, argument)
        self.model_ = as_decider(self.model, self.schema) if self.only_robust is None else read(self.model)
        tell = progress or (lambda argument, done, total: None)
        if self.only_robust is not None:
            askable(self.model_, self.schema, [self.only_robust])
        self.space_ = FeatureSpace.of(self.schema, self.changes, self.custom)
        raw, self.words_ = self.schema.raw(X), words_of(self.schema, X)
        explained = self._explained(X, y, raw, audit, tell)
        negatives = self._negatives(groups_of(self.schema.with_missing(X), sensitive_features), explained)
        self.graph_ = FeasibilityGraph.build(
            self.space_, raw, self.eps, threads=self.threads, progress=lambda done, total: tell("graph", done, total)
        )
        if self.graph_.eps == 0:
            raise DataError(
                "every row that can move has an identical twin, so the smallest eps that leaves nobody alone is 0, and nobody "
                "would move; pass an eps (--eps), or drop duplicate rows"
            )
        self._note_columns(X)
        self.levels_ = binned(self.space_, raw)
        self.reachability_ = Reachability.of(self.graph_)
        weights = None
        if self.cost == "path":
            weights = edge_weights(
                self.graph_, self.weighting, self.bandwidth, progress=lambda done, total: tell("density", done, total)
            )
        self._solve(negatives, weights, tell)
        return self

    def counterfactuals(self, name: str) -> pd.DataFrame:
        """Return a group's chosen rows in the schema's words, with the number of factuals assigned to each and the largest cost."""
        group = self._group(name)
        chosen = group.found.chosen
        served = group.assigned[:, None] == chosen[None, :]
        table = frame_of(self.schema, self.graph_.raw[chosen])
        table = table.rename(columns=beside(("row", "serves", "largest cost"), list(table.columns)))
        table.insert(0, "row", chosen)
        table["serves"] = served.sum(axis=0)
        table["largest cost"] = [group.cost[is_served].max(initial=0.0) for is_served in served.T]
        return table

    def explanations(self, name: str) -> pd.DataFrame:
        """Return a line for each factual of a group: its row, its counterfactual's row and the cost; -1 and inf if it has none."""
        group = self._group(name)
        return pd.DataFrame({"row": group.instance.factuals, "counterfactual": group.assigned, "cost": group.cost})

    def re_evaluated(self) -> pd.DataFrame:
        """Return the network's decisions on the counterfactuals of every group, in exact arithmetic and in float32; see
        `re_evaluated`."""
        used, nodes = self._used()
        return by_group(re_evaluated(self.model_, self.schema, self.graph_.raw[nodes]), nodes, used)

    def certify(
        self, delta: Sequence[float], *, seconds: float | None = None, progress: Callable[[int, int], None] | None = None
    ) -> CertifiedRobustness:
        """Prove that counterfactuals stay positive within delta units: a line for each group, counterfactual and delta, and one
        certificate of all proofs; see `certify_robust`.   seconds: limit (default: that of a group).
        """
        used, nodes = self._used()
        budget = Budget(seconds=self.seconds if seconds is None else seconds)
        robustness = certify_robust(self.model_, self.schema, self.graph_.raw[nodes], delta=delta, budget=budget, progress=progress)
        return CertifiedRobustness(table=by_group(robustness.table, nodes, used), certificate=robustness.certificate)

    def prove_optima(self, *, seconds: float | None = None) -> CentersCertificate | str:
        """Return a certificate that no choice is better, for the groups whose optimum is proved within `seconds`, or the reason
        that there is none: it needs groups for which k is large enough, l2 costs, all positive rows as candidates, and a model that
        `verifair.read` takes.
        """
        check_is_fitted(self, "groups_")
        if self.cost != "l2" or self.custom is not None or self.only_robust is not None or self.method == "mip":
            return "it is about cost l2, methods exact and components, without a custom rule and only_robust"
        network = read(self.model)
        if not network.piecewise_linear:
            return "the model is smooth, so that its decisions are not exact"
        complete = {name: group for name, group in self.groups_.items() if group.short is None}
        if not complete:
            return "k is too few for the coverage that was asked for, in every group"
        answers = {name: (group.negatives, group.instance, group.found) for name, group in complete.items()}
        budget = Budget(seconds=self.seconds if seconds is None else seconds)
        return certificate(
            network, self.schema.named(network), self.graph_, answers, k=self.k, coverage=self.coverage, max_cost=self.max_cost,
            budget=budget,
        )

    def compared(self, *, seed: int = 0, tell: Tell | None = None) -> Iterator[dict[str, Any]]:
        """Yield a line for each group and each of AReS, GLOBE-CE, FACE and FGCE: group, method, size (rules, translations or
        counterfactuals), advised, coverage and cost.

        advised: share of the people to be explained who get a counterfactual with the positive decision.   coverage: share for whom
        it is also feasible by allowed moves.   cost: mean L2 distance over these; NaN if there is nobody.
        Raises QueryError for other costs than l2, and if AReS and GLOBE-CE have nothing to change.   Reference: FGCE, table VI.
        """
        check_is_fitted(self, "groups_")
        if self.cost != "l2":
            raise QueryError(f"cost = {self.cost!r}: AReS and GLOBE-CE are compared by distance; fit with cost l2")
        raw, methods = self.graph_.raw, (ares, partial(globe_ce, seed=seed))
        tasks = [(name, group, method) for name, group in self.groups_.items() for method in methods]
        for n, (name, group, method) in enumerate(tasks):
            if tell is not None:
                tell("compared", n, len(tasks))
            decide = partial(positive, self.model_, self.schema, words=self.words_)
            advice = method(self.space_, raw, raw[group.negatives], decide)
            shares = {advice.name: feasible_share(self.space_, raw, group.negatives, advice, self.graph_.eps)}
            if method is methods[-1]:
                shares |= of_choice(group.instance, group.negatives, group.cost, len(group.found.chosen))
            for label, share in shares.items():
                advised = advice.share if label == advice.name else share.coverage
                yield {"group": name, "method": label, "size": share.size, "advised": advised, "coverage": share.coverage,
                       "cost": share.cost}

    def attribute_changes(self) -> pd.DataFrame:
        """Return ACF: for each group, the share of its factuals whose counterfactual differs in each feature; see `binned`."""
        check_is_fitted(self, "groups_")
        return self._of_changes(change_frequency, self.levels_)

    def attribute_sizes(self) -> pd.DataFrame:
        """Return for each group the mean change of each number, in its own unit, over the people for whom it changes."""
        check_is_fitted(self, "groups_")
        return self._of_changes(change_size, self.graph_.raw)

    def _of_changes(self, measure: Callable[..., pd.Series], rows: Array) -> pd.DataFrame:
        measures = {
            name: measure(self.space_, rows, group.instance.factuals, group.assigned) for name, group in self.groups_.items()
        }
        return pd.DataFrame(measures).T

    def _used(self) -> tuple[dict[str, Integers], Integers]:
        """Return the nodes that are assigned to somebody, by group, and all of them once."""
        check_is_fitted(self, "groups_")
        used = {name: group.used for name, group in self.groups_.items()}
        return used, np.unique(np.concatenate(list(used.values())))

    def _group(self, name: str) -> Group:
        check_is_fitted(self, "groups_")
        if name not in self.groups_:
            raise QueryError(f"there is no group {name!r}; known are {', '.join(self.groups_)}")
        return self.groups_[name]

    def __sklearn_clone__(self) -> GroupCounterfactuals:
        """Return a copy with the same fitted model, which is explained here: sklearn's own `clone` would unfit it."""
        return type(self)(**self.get_params(deep=False))

    def _check(self) -> None:
        check_number("threads", self.threads, whole=True)
        check_number("seconds", self.seconds)
        if not self.seconds > 0 or not self.threads:
            raise QueryError(f"seconds = {self.seconds:g}, threads = {self.threads}: expected some of both")
        check_settings(FgceSettings, {**self.get_params(deep=False), "changes": None})  # `FeatureSpace` checks those, by the schema

    def _explained(self, X: pd.DataFrame, y: Any, raw: Array, audit: Any, tell: Tell) -> Booleans:
        """Return (N,) rows with the negative decision that are to be explained; sets positive_."""
        self.positive_ = positive(
            self.model_, self.schema, raw, lambda done, total: tell("decisions", done, total), words=self.words_
        )
        explained = ~self.positive_
        if audit is not None:
            explained &= audited(audit, len(X))
        if self.factuals == "false-negatives":
            schema = self.schema.settled(self.model_)[1] if isinstance(self.model_, Model) else self.schema
            explained &= schema.favoured(X) if y is None else positives(y, schema, len(X))
        return np.asarray(explained)

    def _negatives(self, members: Mapping[str, Booleans], explained: Booleans) -> dict[str, Integers]:
        """Return nodes to be explained, by group; set skipped_. Raises DataError for a group without any, before the work."""
        negatives = {name: np.flatnonzero(explained & member) for name, member in members.items()}
        without = {name: "nobody in it is to be explained" for name, nodes in negatives.items() if not len(nodes)}
        if without and (self.empty == "error" or len(without) == len(negatives)):
            name = next(iter(without))
            remedy = ', or leave such groups out: empty = "skip" (--empty skip)' if self.empty == "error" else ""
            raise DataError(
                f"{name}: nobody in it is to be explained: none of its {int(members[name].sum())} rows has the negative decision, "
                f"or all of these are left out; choose other groups or rows{remedy}"
            )
        self.skipped_: dict[str, str] = without
        return {name: nodes for name, nodes in negatives.items() if len(nodes)}

    def _solve(self, negatives: Mapping[str, Integers], weights: Array | None, tell: Tell) -> None:
        """Set groups_. One error names all groups for which k is too small, so that k need not be corrected group by group."""
        candidates = np.flatnonzero(self.positive_)
        prove = None if self.only_robust is None else prover(self.model_, self.schema, self.graph_.raw, self.only_robust)
        self.groups_: dict[str, Group] = {}
        self.stranded_: dict[str, int] = {}
        problems: list[str] = []
        for n, (name, nodes) in enumerate(negatives.items()):
            tell("groups", n, len(negatives))
            try:
                instance = Instance.of(
                    self.graph_, self.reachability_, nodes, candidates, cost=self.cost, weights=weights, group=name
                )
            except DataError as error:
                if self.empty == "error" or (n == len(negatives) - 1 and not self.groups_ and not problems):
                    raise
                self.skipped_[name] = str(error).removeprefix(f"{name}: ")
                self.stranded_[name] = len(nodes)
                continue
            try:
                self.groups_[name] = self._solve_group(name, nodes, instance, prove)
            except QueryError as error:
                problems.append(f"{name}: {error}")
        if problems:
            raise QueryError("\n".join(problems))
        tell("groups", len(negatives), len(negatives))

    def _solve_group(self, name: str, negatives: Integers, instance: Instance, prove: Prove | None) -> Group:
        budget, robust, short = Budget(seconds=self.seconds), None, None
        try:
            if prove is not None:
                robust = robust_choice(
                    instance, self._optimum, prove, coverage=self.coverage, max_cost=self.max_cost, budget=budget
                )
                optimum: Centers | Coverage = robust.found
            else:
                optimum, short = self._optimum_or_most(instance, budget)
        except Unfinished as error:
            raise QueryError(
                f"no answer in {self.seconds:.3g} s by method {self.method}; give it more time, or use method exact, which tells "
                "what it has by then"
            ) from error
        limit = optimum.cost if isinstance(optimum, Centers) else float(self.max_cost or 0.0)
        assigned, cost = assignment(instance, optimum.chosen, limit)
        return Group(
            name=name, negatives=negatives, instance=instance, found=optimum, assigned=assigned, cost=cost, robust=robust,
            short=short,
        )

    def _optimum_or_most(self, instance: Instance, budget: Budget) -> tuple[Centers | Coverage, Shortage | None]:
        """Return the optimum for the wanted coverage or, if k is too small for it, for the most people that k can cover."""
        deadline = clock.now() + budget.seconds

        def left() -> Budget:
            return Budget(seconds=max(deadline - clock.now(), 1.0))

        try:
            return self._optimum(instance, self.coverage, budget), None
        except TooFew as error:
            if self.too_few == "error":
                raise QueryError(f'{error}, or too_few = "most" (--too-few most), which covers as many as {self.k} can') from None
            largest = largest_coverage(instance, self.k, np.inf, budget=left())
            if not largest.optimal:
                raise
        optimum = self._optimum(instance, largest.covered / instance.size, left())
        try:
            needed_for_all: int | None = fewest(instance, budget=left())[0]
        except Unfinished:
            needed_for_all = None
        return optimum, Shortage(asked=needed(instance, self.coverage), needed=needed_for_all)

    def _optimum(self, instance: Instance, coverage: float, budget: Budget) -> Centers | Coverage:
        if self.max_cost is not None:
            if self.method == "greedy":
                return greedy_coverage(instance, self.k, self.max_cost)
            return largest_coverage(instance, self.k, self.max_cost, budget=budget)
        if self.method == "mip":
            return by_solver(instance, self.k, coverage, backend=self.solver, budget=budget)
        solve = by_components if self.method == "components" else centers
        return solve(instance, self.k, coverage, budget=budget)
