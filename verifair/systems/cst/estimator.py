"""SituationTesting: fit a causal model to a table, test its protected rows. scikit-learn's conventions.

`chance` counts what the same test finds when protected values are shuffled among the rows, so that they mean nothing. `redraws`
finds who is a case when the categories of counterfactuals are drawn with other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from encoders.arrays import Booleans, Integers
from verifair.checker.report import Progress
from verifair.errors import QueryError
from verifair.systems.arguments import booleans, check_number, check_table
from verifair.systems.cst.causal.categorical import CategoricalMechanism
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import Decider, Recorded, decided, may_read, taken
from verifair.systems.cst.groups import groups_under, in_words, least_group
from verifair.systems.cst.settings import DEFAULTS, Correction, Direction, Distance, Interval, Preset, Small, Ties
from verifair.systems.cst.testing import Method, Situations, Terms, situation_test, with_counterfactuals
from verifair.systems.estimators import TableEstimator
from verifair.systems.stores import NO_STORE, Parts

Z_OF_PAPER = 1.645
"""One-sided 95 %, rounded to three decimals as in the authors' code."""
COPIED = int(pd.__version__.partition(".")[0]) >= 3
"""True if pandas copies on write."""


class SituationTesting(TableEstimator):
    """Test whether people of a protected group would get another decision if they were not in it.  (CST)

    causal_model: a DAG over the table's columns with mechanisms, fitted or not.   decider: makes the decisions (`deciders`).
    do: protected attribute -> its value for those who are not protected. Several are tested each alone, with `intersectional`
    also jointly.   attributes: columns by which people are compared (None: all nodes of the causal model but those in `do` and the
    recorded decision).
    k: numbers of neighbours.   tau, level, sides, z, interval, correction, direction: what counts as a case, see `Terms`.
    distance, ties, categorical, small: see `situation_test`.   seed: of the noise of categories.
    preset: "paper" for the authors' procedure, which overrides distance, ties, z, interval and rounding.
    Sound? Complete? neither: statistical evidence (`Finding`) under the causal model, never a proof.
    Reference: CST (Alvarez and Ruggieri 2023), algorithm 1.
    """

    def __init__(
        self, causal_model: CausalModel, decider: Decider, *, do: Mapping[str, Any],
        attributes: Sequence[str] | None = DEFAULTS.attributes, k: Sequence[int] = DEFAULTS.k, tau: float = DEFAULTS.tau,
        level: float = DEFAULTS.level, sides: int = DEFAULTS.sides, interval: Interval = DEFAULTS.interval,
        correction: Correction | None = DEFAULTS.correction, distance: Distance = DEFAULTS.distance, ties: Ties = DEFAULTS.ties,
        categorical: Sequence[str] = DEFAULTS.categorical, z: float | None = DEFAULTS.z, direction: Direction = DEFAULTS.direction,
        intersectional: bool = DEFAULTS.intersectional, preset: Preset | None = DEFAULTS.preset,
        small: Small = DEFAULTS.small, seed: int = 0, threads: int = 2,
    ) -> None:
        self.causal_model, self.decider, self.do, self.attributes, self.k = causal_model, decider, do, attributes, k
        self.tau, self.level, self.sides, self.interval, self.correction = tau, level, sides, interval, correction
        self.distance, self.ties, self.categorical, self.z, self.direction = distance, ties, categorical, z, direction
        self.intersectional, self.preset, self.small, self.seed, self.threads = intersectional, preset, small, seed, threads

    def fit(self, X: pd.DataFrame, y: Any = None) -> SituationTesting:
        """Fit the causal model to the rows of X, and let the decider decide on them.   y: ignored; the test does not use labels.

        Sets causal_model_, frame_, decisions_ (N,).   Raises DataError, SchemaError, QueryError for what does not fit.
        """
        self._check()
        check_table(X)
        self.causal_model.check(X, self.do)
        self.decisions_ = booleans(self.decider.decide(X), len(X), "decisions")
        with threadpool_limits(limits=1):  # small fits: OpenMP's threads wait for each other, ten times as long beside other work
            self.causal_model_ = self.causal_model if self.causal_model.fitted else self.causal_model.fit(X, seed=self.seed)
        self._note_columns(X)
        self.frame_ = X.copy(deep=not COPIED)  # later changes of the caller's table must not change this test
        return self

    def interventions(self) -> tuple[dict[str, Any], ...]:
        """Return the interventions to test: each protected attribute alone, and with `intersectional` all of them jointly."""
        single = tuple({name: value} for name, value in self.do.items())
        return (*single, dict(self.do)) if self.intersectional and len(single) > 1 else single

    def counterfactual(self, do: Mapping[str, Any], *, seed: int | None = None) -> tuple[pd.DataFrame, Booleans | None]:
        """Return the counterfactuals of the complainants (C rows) under `do`, and the decisions on them (C,), None without any.

        seed: of the noise of categories (default: that of the test).
        """
        check_is_fitted(self)
        do = self.causal_model_.check(self.frame_, do)  # the values as the table writes them: True for 1 in a column of booleans
        rows = self.frame_.iloc[self.complainants(do)]
        return decided(self.decider, self.causal_model_.counterfactual(rows, do, seed=self.seed if seed is None else seed))

    def drawn(self, do: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the nodes whose categories are drawn for counterfactuals under `do`, and affect attributes or decisions."""
        check_is_fitted(self)
        model = self.causal_model_
        relevant = {*may_read(self.decider, model.by_name), *self.attributes_}
        return tuple(
            name for name in model.descendants(list(do)) if isinstance(model.fitted[name], CategoricalMechanism)
            and {name, *model.descendants(name)} & relevant
        )

    def complainants(self, do: Mapping[str, Any], frame: pd.DataFrame | None = None) -> Integers:
        """Return positions (C,) of the rows that are tested, in `frame` (default: the table of `fit`)."""
        frame = self.frame_ if frame is None else frame
        return np.flatnonzero(groups_under(frame, do, least=least_group(self.k, self.small))[1] >= 0)

    def test(
        self, *, progress: Progress | None = None, store: str | Path | None = None, resume: bool = False
    ) -> dict[str, Situations]:
        """Test every intervention, and return its name, such as "Gender = 0" -> the result.

        progress: called with (done, total), for each intervention anew.   store: SQLite file that keeps partial results.
        resume: use the partial results of this test that the store holds.
        Raises DataError where a group is smaller than a k, and for a file that is not a store.
        """
        check_is_fitted(self)
        with Parts.kept(store, resume=resume) as parts:
            return {in_words(do): self.test_one(do, progress=progress, parts=parts) for do in self.interventions()}

    def test_one(self, do: Mapping[str, Any], *, progress: Progress | None = None, parts: Parts = NO_STORE) -> Situations:
        """Test one intervention, as `test` does."""
        tilde, decisions = self.counterfactual(do)
        do = self.causal_model_.check(self.frame_, do)
        return self.compared(self.frame_, tilde, do, decisions, progress=progress, parts=parts)

    def compared(
        self, frame: pd.DataFrame, tilde: pd.DataFrame, do: Mapping[str, Any], decisions: Booleans | None = None, *,
        progress: Progress | None = None, parts: Parts = NO_STORE,
    ) -> Situations:
        """Run the test with these settings on a table `frame` with counterfactuals `tilde`; decisions are those of `fit`."""
        paper = self.preset == "paper"
        terms = Terms(tau=self.tau, interval="wald", z=Z_OF_PAPER, decimals=3, direction=self.direction) if paper else Terms(
            tau=self.tau, level=self.level, sides=self.sides, interval=self.interval, correction=self.correction, z=self.z,
            direction=self.direction,
        )
        return situation_test(
            frame, tilde, do=do, attributes=self.attributes_, decisions=self.decisions_, counterfactual_decisions=decisions,
            k=self.k, terms=terms, distance="standardised" if paper else self.distance, own_scale=paper,
            ties="heap" if paper else self.ties, categorical=self.categorical, small=self.small,
            threads=self.threads, progress=progress, parts=parts,
        )

    @property
    def attributes_(self) -> tuple[str, ...]:
        """The columns by which people are compared, without the recorded decision (else all neighbours would be decided alike)."""
        if self.attributes is not None:
            return tuple(self.attributes)
        excluded = {*self.do, self._recorded}
        return tuple(node.name for node in self.causal_model.nodes if node.name not in excluded)

    @property
    def _recorded(self) -> str | None:
        """The column of recorded decisions."""
        return self.decider.column if isinstance(self.decider, Recorded) else None

    def _check(self) -> None:
        if not isinstance(self.causal_model, CausalModel):
            raise QueryError(f"causal_model: found {type(self.causal_model).__name__}; expected a CausalModel (CausalModel.load)")
        if not callable(getattr(self.decider, "decide", None)):
            raise QueryError(
                f"decider: found {type(self.decider).__name__}; expected Recorded, LinearRule, EstimatorDecider or NetworkDecider "
                "(verifair.systems.cst.deciders)"
            )
        if not isinstance(self.do, Mapping) or not self.do:
            raise QueryError(f"do = {self.do!r}: expected attribute -> value of the not protected, such as {{'sex': 'Male'}}")
        if self.preset not in (None, "paper"):
            raise QueryError(f"preset = {self.preset!r}: expected None or 'paper'")
        for name in ("attributes", "categorical"):
            if isinstance(getattr(self, name), str):
                raise QueryError(f"{name} = {getattr(self, name)!r}: expected a list of names, such as [{getattr(self, name)!r}]")
        both = [name for name in self.attributes or () if name in self.do]
        if both:
            raise QueryError(f"attributes: {both[0]!r} is what do changes, so that it cannot make two people similar; leave it out")
        if self._recorded in (self.attributes or ()):
            raise QueryError(
                f"attributes: {self._recorded!r} is the decision itself; people alike in it are decided alike: leave it out"
            )
        for name, minimum in (("seed", 0), ("threads", 1)):
            value = getattr(self, name)
            check_number(name, value, whole=True)
            if value < minimum:
                raise QueryError(f"{name} = {value}: expected {minimum} or more")


def chance(
    test: SituationTesting, do: Mapping[str, Any], *, deals: int = 10, progress: Progress | None = None,
    parts: Parts = NO_STORE,
) -> pd.DataFrame:
    """Return mean counts of ST and CST w/o over `deals` shuffles, a line for each method and k, columns as in `Situations.counts`.

    test: fitted. In each shuffle the rows exchange their values of the attributes of `do` at random, and the causal model is fitted
    again; attributes and decisions stay, so nothing depends on the protected attributes. (CF and CST use decisions on
    counterfactuals, which would still depend on the attribute if the decider reads it; they are left out.)
    Shares of refusals in two groups of fifteen are hardly ever equal, and groups of unequal size differ more. So only a test's
    excess over these counts is evidence.
    progress: called with (shuffles done, all).   Raises QueryError for fewer than one.
    Reference: none; a permutation test of the counts.
    """
    check_is_fitted(test)
    test.causal_model_.check(test.frame_, do)
    check_number("deals", deals, whole=True)
    if deals < 1:
        raise QueryError(f"deals = {deals}: expected 1 or more")
    frame, columns, counts = test.frame_, list(do), []
    for deal in range(deals):
        order = np.random.default_rng([test.seed, deal]).permutation(len(frame))
        dealt = frame.assign(**{name: frame[name].iloc[order].set_axis(frame.index) for name in columns})
        with threadpool_limits(limits=1):
            model = replace(test.causal_model_, fitted={}).fit(dealt, seed=test.seed)
        people = dealt.iloc[test.complainants(do, dealt)]
        tilde = taken(test.decider, model.counterfactual(people, do, seed=test.seed))
        counts.append(test.compared(dealt, tilde, do, parts=parts).counts())
        if progress is not None:
            progress(deal + 1, deals)
    return pd.concat(counts).groupby(["method", "k"], sort=False, as_index=False).mean()


def redraws(test: SituationTesting, found: Situations, *, draws: int, parts: Parts = NO_STORE) -> Iterator[dict[Method, Booleans]]:
    """Yield, for each draw of the noise of categories, method -> (C,) True where a complainant is a case at the smallest k.

    test: fitted.   found: its result for one intervention, which is the first draw; the others use the next seeds.
    The causal model is not fitted again. Raises QueryError for fewer than one draw.
    Reference: none; Monte Carlo over the noise that abduction leaves undetermined (Oberst and Sontag 2019, section 3.2).
    """
    check_is_fitted(test)
    check_number("draws", draws, whole=True)
    if draws < 1:
        raise QueryError(f"draws = {draws}: expected 1 or more")
    k, situations = min(found.k), found
    for draw in range(draws):
        if draw:
            tilde, decisions = test.counterfactual(found.do, seed=test.seed + draw)
            situations = with_counterfactuals(
                found, test.frame_, tilde, decisions, k=k, own_scale=test.preset == "paper", threads=test.threads,
                parts=parts,
            )
        yield {method: situations.claims(method, k).positive for method in situations.methods}
