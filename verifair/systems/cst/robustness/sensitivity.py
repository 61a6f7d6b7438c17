"""Sensitivity: by how many standard errors must coefficients of the causal model change before a verdict changes?

For a causal model whose numbers follow linear or log-linear equations, every complainant has

    t* = the smallest t such that some coefficients, each within t standard errors of its estimate, change the verdict

For CF under a linear rule on numbers that are neither rounded nor clipped, t* is computed up to the rounding of floats
(`exact_flips`). Otherwise it is bracketed, safe <= t* <= flip: within `safe` no coefficients change the verdict (`safe_bounds`); at
`flip` some were found that do (`flip_search`), inf if none was found.

The decider, the graph, the form of the equations, the table, the distance and the categories drawn for the counterfactuals are
fixed: t* is about the equations' coefficients alone. Sound? `safe` is, up to the rounding of
floats; `flip` is a flip of the test itself.  Complete? no: a Finding, never a proof.
Reference: none for situation testing; Kilbertus et al. (UAI 2019) vary the noise's correlation for CF instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from encoders.arrays import Array, Booleans, Integers
from verifair.checker.report import Progress
from verifair.engine.verdict import Finding
from verifair.errors import QueryError
from verifair.systems.cst.deciders import LinearRule, counterfactually, may_read
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.groups import in_words
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.cst.robustness.effects import Effects, Errors
from verifair.systems.cst.robustness.exact_flips import smallest_flips
from verifair.systems.cst.robustness.flip_search import Flips, directions, search
from verifair.systems.cst.robustness.problem import SensitivityProblem, Verdict
from verifair.systems.cst.robustness.safe_bounds import refined, safe
from verifair.systems.cst.testing import METHODS, Claims, Method, Situations

LEVELS = (1.0, 1.645, 1.96)
"""Standard errors at which shares of robust claims are shown: one, and those of one- and two-sided 95 % intervals."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity(Finding):
    """The sensitivity of C verdicts of one method. A Finding whose value is the share of claims that are safe at 1.96 standard
    errors.

    complainants: (C,) positions in the table.   claims: (C,) the verdicts at the estimates.   safe, flip: (C,) see the module.
    theta: (C, p) coefficients at `flip` (on the border, up to rounding).
    alone: (C, p) the smallest flip found that moves one coefficient only.
    exact: whether safe = flip = t*.   most: how far flips were sought.
    """

    do: Mapping[str, Any]
    test: Method
    k: int
    verdict: Verdict
    effects: Effects = field(repr=False)
    complainants: Integers
    claims: Booleans
    safe: Array
    flip: Array
    theta: Array = field(repr=False)
    alone: Array = field(repr=False)
    exact: bool
    most: float

    @property
    def coefficient(self) -> list[str]:
        """(C) name of the coefficient that flips each verdict alone by the smallest change; "" where none was found."""
        names = [coefficient.name for coefficient in self.effects.coefficients]
        return ["" if not len(t) or np.isinf(t.min()) else names[int(t.argmin())] for t in self.alone]

    def robust(self, t: float) -> tuple[float, float]:
        """Return the share of claims that no coefficients within t standard errors overturn, and the share overturned by ones
        found.

        NaN where there are no claims.
        """
        if not self.claims.any():
            return float("nan"), float("nan")
        overturned = self.flip[self.claims] <= t
        return float(((self.safe[self.claims] >= t) & ~overturned).mean()), float(overturned.mean())

    def shares(self, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Return a line for each t: the shares of claims that are robust, overturned, and unknown."""
        lines = []
        for t in levels:
            robust, overturned = self.robust(t)
            is_open = (self.safe[self.claims] < t) & (self.flip[self.claims] > t)
            unknown = float(is_open.mean()) if self.claims.any() else float("nan")
            lines.append({
                "t": t, "claims": int(self.claims.sum()), "robust": robust, "overturned": overturned, "open": unknown,
            })
        return pd.DataFrame(lines)

    def table(self) -> pd.DataFrame:
        """Return a line for each complainant, the least robust claims first."""
        frame = pd.DataFrame({
            "row": self.complainants, "claim": self.claims, "safe": self.safe, "flip": self.flip, "coefficient": self.coefficient,
            "alone": self.alone.min(axis=1, initial=np.inf),
        })
        return frame.sort_values(["claim", "flip", "safe"], ascending=[False, True, True], kind="stable", ignore_index=True)

    def coefficients(self) -> pd.DataFrame:
        """A line for each coefficient: estimate, error, and how many claims it overturns alone within 1.96 standard errors."""
        return pd.DataFrame([
            {"coefficient": coefficient.name, "estimate": coefficient.estimate, "error": coefficient.error,
             "overturns": int((self.alone[self.claims, k] <= LEVELS[-1]).sum())}
            for k, coefficient in enumerate(self.effects.coefficients)
        ])


def sensitivity(
    tester: SituationTesting, do: Mapping[str, Any] | None = None, *, method: Method = "CST", k: int | None = None,
    verdict: Verdict = "positive", errors: Errors | None = None, most: float = 5.0, effort: int = 256,
    claims_only: bool = True, found: Situations | None = None, progress: Progress | None = None,
) -> Sensitivity:
    """Find how far the coefficients must move before verdicts of a fitted test change.

    do: the intervention; may be left out where the test has one.   k: group size, default the smallest.   errors: standard errors
    of coefficients that were given, see `effects.Errors`.   most: standard errors up to which flips are sought.   effort: parts of
    the coefficients' box that are bounded for each complainant.   claims_only: leave out complainants without a claim.
    found: the test's result for `do`, where it is at hand.   progress(done, total): rounds, of both searches.
    With preset "paper" the scale of counterfactuals is held as it is at the estimates.
    Raises QueryError for mechanisms without coefficients, coefficients without errors, categories that these move, "ST" (which uses
    no causal model), verdicts of recorded decisions that compare with a counterfactual, or corrected for multiple testing.
    Raises DataError for log-linear nodes that hold 0 or less.
    """
    check_is_fitted(tester)
    do = _intervention(tester, do)
    if method not in METHODS or method == "ST":
        reason = "asks no causal model, so nothing in it can be varied" if method == "ST" else "there is no such method"
        raise QueryError(f"method {method!r}: {reason}; choose 'CST', 'CST w/o' or 'CF'")
    if verdict not in ("positive", "significant") or (method == "CF" and verdict != "positive"):
        raise QueryError(f"verdict {verdict!r} of {method}: expected 'positive'" + ("" if method == "CF" else " or 'significant'"))
    if verdict == "significant" and tester.correction is not None:
        raise QueryError(
            f"significance corrected by {tester.correction!r} depends on all complainants at once; ask for verdict 'positive', or "
            "test without the correction"
        )
    if tester.direction != "negative":
        raise QueryError("direction 'positive': the robustness of a claim is known for negative discrimination alone; leave it out")
    if not 0 < most < np.inf:
        raise QueryError(f"most = {most}: expected a positive number of standard errors, such as 5")
    found = tester.test_one(do) if found is None else found
    claims = found.claims(method, min(found.k) if k is None else k)  # raises QueryError for claims that the test cannot make
    verdicts = claims.positive if verdict == "positive" else claims.significant
    index = np.flatnonzero(verdicts) if claims_only else np.arange(len(verdicts))
    problem = _problem(tester, do, found, errors, index, claims, verdict, most)
    rule = counterfactually(problem.decider)
    exact = method == "CF" and isinstance(rule, LinearRule) and problem.effects.plain
    if exact:
        assert isinstance(rule, LinearRule)
        flips = _exact_flips(problem, rule)
        lower = flips.smallest
    else:
        problem.effects.check_finite(problem.values, problem.change, most)
        lower = safe(problem, most)
        flips = search(problem, lower, most, progress=progress)
        lower = refined(problem, lower, np.minimum(flips.smallest, most), effort=effort, progress=progress)
    return _found(problem, do, lower, flips, exact, most)


def _found(problem: SensitivityProblem, do: Mapping[str, Any], lower: Array, flips: Flips, exact: bool, cap: float) -> Sensitivity:
    claims = problem.now
    value = float((lower[claims] >= LEVELS[-1]).mean()) if claims.any() else float("nan")
    return Sensitivity(
        kind="sensitivity of situation testing to its causal model", value=value, method="exact" if exact else "bracket", seed=None,
        details={
            "do": in_words(do), "claims": int(claims.sum()),
            "coefficients": [coefficient.name for coefficient in problem.effects.coefficients],
        },
        do=dict(do), test=problem.method, k=problem.k, verdict=problem.verdict, effects=problem.effects,
        complainants=problem.found.complainants[problem.index], claims=claims, safe=lower, flip=flips.smallest, theta=flips.theta,
        alone=flips.alone, exact=exact, most=float("inf") if exact else cap,
    )


def _intervention(tester: SituationTesting, do: Mapping[str, Any] | None) -> dict[str, Any]:
    choices = tester.interventions()
    if do is None and len(choices) > 1:
        raise QueryError(f"do: the test has {len(choices)} interventions; name one of {'; '.join(in_words(d) for d in choices)}")
    model = tester.causal_model_
    return dict(model.check(tester.frame_, choices[0] if do is None else do))


def _problem(
    tester: SituationTesting, do: Mapping[str, Any], found: Situations, errors: Errors | None, index: Integers,
    claims: Claims, verdict: Verdict, cap: float,
) -> SensitivityProblem:
    frame, method = tester.frame_.iloc[found.complainants], claims.method
    read = may_read(tester.decider, tester.causal_model_.by_name) if method != "CST w/o" else ()
    needed = {*(tester.attributes_ if method != "CF" else ()), *read}
    effects = Effects.of(tester.causal_model_, do, needed=needed, errors=errors)
    words = [name for name in effects.nodes if name in found.metric.words]
    if words:
        raise QueryError(f"attribute {words[0]!r}: counts as a category, but its equation moves a number; drop it from categorical")
    base = tester.causal_model_.counterfactual(frame, do, seed=tester.seed)
    values, change = effects.values(frame.iloc[index]), effects.changes(frame, base)[index]
    effects.check_categories(values, change, cap)
    metric = found.metric
    if tester.preset == "paper":
        legal, _ = tester.counterfactual(do)
        others = tester.frame_.iloc[np.setdiff1d(np.arange(len(tester.frame_)), found.complainants)]
        scaled = Metric.of(metric.name, pd.concat([others, legal]), tester.attributes_, tester.categorical)
        metric = replace(scaled, levels=metric.levels)  # as `situation_test` has them
    return SensitivityProblem(
        effects=effects, decider=tester.decider, found=found, base=base.iloc[index], values=values, change=change,
        metric=metric, index=index, method=method, k=claims.k, verdict=verdict,
    )


def _exact_flips(problem: SensitivityProblem, rule: LinearRule) -> Flips:
    """Return t* of CF under a rule. People who were not refused have no claim at any coefficients: their t* is infinite."""
    effects = problem.effects
    refused = problem.found.refused[problem.index]
    accepted = ~(problem.found.refused_tilde if problem.found.refused_tilde is not None else problem.found.refused)[problem.index]
    base = rule.score(problem.rows(np.arange(len(problem)), problem.values))
    smallest, theta = smallest_flips(effects, rule, base, problem.change, accepted, effects.corners)
    alone = np.full((len(problem), len(effects)), np.inf)
    signs, coefficient = directions(effects)
    for k in dict.fromkeys(coefficient[coefficient >= 0].tolist()):
        alone[:, k], _ = smallest_flips(effects, rule, base, problem.change, accepted, signs[coefficient == k])
    smallest, alone = np.where(refused, smallest, np.inf), np.where(refused[:, None], alone, np.inf)
    return Flips(smallest=smallest, theta=np.where(refused[:, None], theta, np.nan), alone=alone)
