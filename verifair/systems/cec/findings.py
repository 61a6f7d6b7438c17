"""What a CEC audit measured, in the schema's words and ready to be shown: groups, features, people to review, the unmatched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from encoders.network import Array, Booleans, Integers
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import Audit
from verifair.systems.cec.measures import (
    Interval,
    Triviality,
    by_feature,
    by_group,
    excess,
    feature_parts,
    interval,
    sensitivity,
    to_review,
    triviality,
)
from verifair.systems.cec.score import REGIMES, contributions, normalised

EVERYBODY = "everybody"
FEW = 10
"""Pairs below which a correlation says nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupFindings:
    """One group, or everybody.   people: audited.   pairs: with each other group, matched of them with a counterpart.

    distance: median, 90 %, largest to the nearest counterpart, matched or not, in standard deviations of merit.   twins: share of
    matched pairs with a counterpart of the same merit.   ties: median and largest number of equally near counterparts.
    cec, pfr: None where nobody is matched.   regimes: shares A to D of the matched pairs.   within: mean score of the same people
    and the nearest comparable ones of their own group.   beyond: how much higher the scores across are, for those with both; None
    where that was not measured.
    """

    name: str
    people: int
    pairs: int
    matched: int
    distance: tuple[float, float, float]
    twins: float
    ties: tuple[float, int]
    cec: Interval | None
    pfr: Interval | None
    regimes: dict[str, float]
    within: float
    beyond: Interval | None

    @property
    def coverage(self) -> float:
        return self.matched / self.pairs


@dataclass(frozen=True, kw_only=True, eq=False)
class Consistency:
    """audit, schema: what this is about.   rows, reference_rows: names of the audited and of the reference's rows.

    groups: everybody first.   inner: the same people beside the nearest of their own group, if that was measured.
    review, features, thresholds: tables, see `verifair.systems.cec.measures`.   trivial: whether the model decides at all.
    follows: rank correlation of score and distance over matched pairs, NaN where either is constant.
    """

    audit: Audit
    schema: Schema
    rows: pd.Index
    reference_rows: pd.Index
    groups: tuple[GroupFindings, ...]
    between: pd.DataFrame
    review: pd.DataFrame
    features: pd.DataFrame
    thresholds: pd.DataFrame
    trivial: Triviality
    follows: float
    inner: Audit | None

    @classmethod
    def of(
        cls, audit: Audit, schema: Schema, rows: pd.Index, reference_rows: pd.Index, *, inner: Audit | None = None, top: int = 20,
        seed: int = 0,
    ) -> Consistency:  # fmt: skip
        """inner: see there.   top: so many pairs to review.   seed: of the bootstrap."""
        belongs = audit.people.groups[audit.matches.individual]
        names = [(k, name) for k, name in enumerate(audit.people.names) if (belongs == k).any()]
        everybody = _findings(audit, inner, EVERYBODY, np.ones(len(belongs), dtype=bool), seed)
        return cls(
            audit=audit, schema=schema, rows=rows, reference_rows=reference_rows,
            groups=(everybody, *(_findings(audit, inner, name, belongs == k, seed) for k, name in names)),
            between=by_group(audit), review=_review(audit, schema, rows, reference_rows, top),
            features=feature_parts(audit, schema), thresholds=sensitivity(audit), trivial=triviality(audit),
            follows=_rank_correlation(audit.score, audit.matches.distance[audit.pair]), inner=inner,
        )  # fmt: skip

    @property
    def everybody(self) -> GroupFindings:
        return self.groups[0]

    def pairs(self) -> pd.DataFrame:
        """One line for each audited person and other group: rows, labels, distance, ties, and what was measured of the matched."""
        audit, matches = self.audit, self.audit.matches
        names = np.array(audit.people.names, dtype=object)
        who = matches.individual
        table = pd.DataFrame({
            "row": self.rows[who], "group": names[audit.people.groups[who]], "other": names[matches.other],
            "label": audit.people.labels[who], "counterpart": _called(matches.row, self.reference_rows),
            "distance": matches.distance, "ties": matches.ties,
        })  # fmt: skip
        measured = pd.DataFrame({
            "score": audit.score, "regime": audit.regime, "decision": audit.decision, "its decision": audit.decision_tilde,
            "probability": audit.probability, "its probability": audit.probability_tilde,
        }, index=audit.pair)  # fmt: skip
        measured = measured.astype({"decision": "Int64", "its decision": "Int64"})
        if self.inner is not None:
            table["score within"] = pd.Series(self.inner.score, index=self.inner.individual).reindex(who).to_numpy()
        return table.join(measured)

    def unmatched(self) -> pd.DataFrame:
        """The pairs without a counterpart, the farthest first, with the reason."""
        table = self.pairs()
        table = table.loc[self.audit.matches.row < 0, ["row", "group", "other", "label", "distance"]]
        table["reason"] = [f"the nearest is {d:.4g} away, tau = {self.audit.matches.tau:g}" for d in table["distance"]]
        return table.sort_values("distance", ascending=False, kind="stable").reset_index(drop=True)

    def attributions(self) -> pd.DataFrame:
        """Normalised attributions of every matched pair by feature (they differ where reasons do): own, then the counterpart's."""
        names = [feature.name for feature in self.schema.features]
        own, other = (by_feature(self.schema, normalised(g)) for g in (self.audit.g, self.audit.g_tilde))
        key = self.pairs().loc[self.audit.pair, ["row", "counterpart", "score"]].reset_index(drop=True)
        key.columns = pd.Index(["pair's row", "pair's counterpart", "pair's score"])
        columns = [*names, *(f"its {name}" for name in names)]
        return key.join(pd.DataFrame(np.hstack([own, other]), columns=pd.Index(columns)))

    def group_table(self) -> pd.DataFrame:
        """The groups in lines of numbers."""
        return pd.DataFrame([_flat(one) for one in self.groups])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "finding": "explanation consistency",
            "proved": False,
            "cec": asdict(self.everybody.cec) if self.everybody.cec else None,
            "pfr": asdict(self.everybody.pfr) if self.everybody.pfr else None,
            "control": {
                "within": self.everybody.within,
                "across_more_by": asdict(self.everybody.beyond) if self.everybody.beyond else None,
            },
            "regimes": self.everybody.regimes,
            "regime_meaning": dict(REGIMES),
            "coverage": self.everybody.coverage,
            "groups": [asdict(one) | {"coverage": one.coverage} for one in self.groups],
            "between_groups": _records(self.between),
            "features": _records(self.features),
            "thresholds": _records(self.thresholds),
            "review": _records(self.review),
            "unmatched": _records(self.unmatched()),
            "model_decides": asdict(self.trivial) | {"hardly": self.trivial.hardly_decides},
            "score_follows_distance": self.follows,
            "pairs": _records(self.pairs()),
        }


def _findings(audit: Audit, inner: Audit | None, name: str, mine: Booleans, seed: int) -> GroupFindings:
    """mine: (P,) the pairs of one group's people."""
    matches = audit.matches
    own = replace_pairs(audit, np.flatnonzero(mine[audit.pair]))
    near, ties = matches.distance[mine], matches.ties[own.pair]
    measured = len(own.pair) > 0
    inside, beyond = _beyond(own, inner, seed)
    return GroupFindings(
        name=name, people=len(np.unique(matches.individual[mine])), pairs=int(mine.sum()), matched=len(own.pair),
        distance=(float(np.median(near)), float(np.quantile(near, 0.9)), float(near.max())),
        twins=float((matches.distance[own.pair] == 0).mean()) if measured else float("nan"),
        ties=(float(np.median(ties)), int(ties.max())) if measured else (float("nan"), 0),
        cec=interval(own, own.score, seed=seed) if measured else None,
        pfr=interval(own, (~own.same_decision).astype(float), seed=seed) if measured else None,
        regimes={letter: float((own.regime == letter).mean()) for letter in REGIMES} if measured else {},
        within=inside, beyond=beyond,
    )  # fmt: skip


def _beyond(own: Audit, inner: Audit | None, seed: int) -> tuple[float, Interval | None]:
    """Mean score of these people within their group, and by how much their scores across exceed it."""
    kept = np.zeros(0, dtype=np.int64) if inner is None else np.flatnonzero(np.isin(inner.individual, own.individual))
    if inner is None or not len(kept):
        return float("nan"), None
    control = replace_pairs(inner, kept)
    return float(control.score.mean()), excess(own, control, seed=seed)


def replace_pairs(audit: Audit, kept: Integers) -> Audit:
    """The audit of some of its matched pairs only. kept: (K,) positions among the matched."""
    fields = ("pair", "g", "g_tilde", "score", "decision", "decision_tilde", "probability", "probability_tilde")
    return replace(audit, **{field: getattr(audit, field)[kept] for field in fields})


def _review(audit: Audit, schema: Schema, rows: pd.Index, reference_rows: pd.Index, top: int) -> pd.DataFrame:
    """`to_review` with rows called as in their tables, decisions in words, and reasons of the two features that differ most."""
    table = to_review(audit, schema, top)
    names = list(audit.people.names)
    pairs = zip(audit.individual.tolist(), audit.matches.other[audit.pair].tolist(), strict=True)
    place = {pair: n for n, pair in enumerate(pairs)}
    at = [place[row, names.index(other)] for row, other in zip(table["row"], table["other"], strict=True)]
    own, other = (by_feature(schema, normalised(g[at])) for g in (audit.g, audit.g_tilde))
    part = by_feature(schema, contributions(audit.g[at], audit.g_tilde[at]))
    two = np.argsort(-part, axis=1, kind="stable")[:, :2]
    table["reasons"] = [
        "; ".join(f"{schema.features[v].name} {own[n, v]:+.2f} / {other[n, v]:+.2f}" for v in most) for n, most in enumerate(two)
    ]
    table["row"] = rows[table["row"]]
    table["counterpart"] = reference_rows[table["counterpart"]]
    for column in ("decision", "its decision"):
        table[column] = [schema.outcomes[int(one)] for one in table[column]]
    return table


def _rank_correlation(score: Array, distance: Array) -> float:
    if len(score) < FEW or np.ptp(score) == 0 or np.ptp(distance) == 0:
        return float("nan")
    return float(spearmanr(score, distance).statistic)


def _called(row: Integers, names: pd.Index) -> pd.Series:
    """(P,) names of rows, None for -1; objects, so that 308 stays 308 beside a None."""
    return pd.Series([names[r] if r >= 0 else None for r in row], dtype=object)


def _flat(one: GroupFindings) -> dict[str, Any]:
    """A group in one line of CSV."""
    line = {
        "group": one.name, "people": one.people, "pairs": one.pairs, "matched": one.matched, "coverage": one.coverage,
        "median distance": one.distance[0], "90% distance": one.distance[1], "largest distance": one.distance[2],
        "share with equal merit": one.twins, "median ties": one.ties[0], "most ties": one.ties[1],
    }  # fmt: skip
    for name, interval_ in (("cec", one.cec), ("pfr", one.pfr)):
        line |= {name: None, f"{name}_low": None, f"{name}_high": None}
        if interval_ is not None:
            line |= {name: interval_.mean, f"{name}_low": interval_.low, f"{name}_high": interval_.high}
    line |= {"within": one.within, "beyond": None, "beyond_low": None, "beyond_high": None}
    if one.beyond is not None:
        line |= {"beyond": one.beyond.mean, "beyond_low": one.beyond.low, "beyond_high": one.beyond.high}
    return line | one.regimes


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    table = table.astype(object).where(table.notna(), None)
    return [{str(key): value for key, value in line.items()} for line in table.to_dict(orient="records")]
