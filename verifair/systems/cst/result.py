"""The result of CST: cases by intervention, their robustness to the causal model, and certified counterfactual decisions."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field, computed_field

from verifair.checker.certificates.extent import Sha256
from verifair.checker.report import Progress
from verifair.schema.feature import text
from verifair.systems.cst.case import Case
from verifair.systems.cst.deciders import LinearRule, counterfactually
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import Intervention, several
from verifair.systems.cst.groups import in_words
from verifair.systems.cst.robustness.cells import Dependence
from verifair.systems.cst.robustness.certified import DEPENDS, FLIPS, LEFT_OUT, REASONS, STAYS, CertifiedCounterfactuals
from verifair.systems.cst.robustness.problem import Verdict
from verifair.systems.cst.robustness.sensitivity import Sensitivity, sensitivity
from verifair.systems.cst.settings import Direction
from verifair.systems.cst.testing import Method
from verifair.systems.results.files import file_name
from verifair.systems.results.result import Count, MeasuredTrust, Result, RowName, RowsOf, Seconds, Shape, Share, Value
from verifair.systems.results.words import listed

Do = Annotated[dict[str, Value | int], Field(description="Protected attribute -> the value of those who are not protected.")]
MAX_ERRORS = 5.0
"""Standard errors up to which flips are sought, and drawn."""
CLAIM_NAMES = {"positive": "cases", "significant": "significant"}


class CstQuery(Shape):
    kind: Literal["cst"] = "cst"
    do: dict[str, str]
    attributes: list[str]
    categorical: list[str]
    """Attributes that count as categories although they hold numbers."""
    k: list[int]
    """Group sizes."""
    tau: float
    level: Share
    """Level of the intervals."""
    sides: Literal[1, 2]
    z: float | None
    """Critical value, where it was given in place of level and sides."""
    direction: Direction
    interval: str
    correction: str | None
    distance: str
    ties: str
    intersectional: bool
    preset: str | None
    decides: str
    data: str
    rows: Count

    @classmethod
    def of(cls, model: SituationTesting, first: Intervention, data: str) -> CstQuery:
        """Return what was asked. first: the first intervention's test.   data: the source of the rows, in words."""
        terms = first.found.terms
        return cls(
            do={name: text(value) for name, value in model.do.items()}, attributes=list(model.attributes_),
            categorical=list(model.categorical), k=first.k, z=terms.z, direction=terms.direction,
            tau=terms.tau, level=terms.level, sides=2 if terms.sides == 2 else 1, interval=terms.interval,
            correction=terms.correction, distance=first.found.metric.name, ties=first.found.ties,
            intersectional=model.intersectional,
            preset=model.preset, decides=model.decider.words, data=data, rows=len(model.frame_),
        )


class Several(Shape):
    """People protected by several attributes: how many are a case for each alone, and jointly."""

    method: Method
    k: int
    people: Count
    multiple: Count
    intersectional: float | None


class RobustShare(Shape):
    t: float
    """Standard errors."""
    claims: Count
    robust: Share | None
    overturned: Share | None
    open: Share | None


class Overturning(Shape):
    coefficient: str
    estimate: float
    error: float
    overturns: Count
    """Claims, alone within 1.96 standard errors."""


class SensitivePerson(Shape):
    row: RowName
    claim: bool
    safe: float | None
    """Standard errors within which nothing flips; null: as far as was sought."""
    flip: float | None
    """Standard errors at which it flips; null: not within those sought."""
    coefficient: str | None
    alone: float | None


class RobustClaims(Shape):
    """Bounds on the error of the causal model at which the claims of one method flip."""

    do: Do
    method: Method
    k: int
    verdict: Verdict
    exact: bool
    most: float
    complainants: Count
    claims: Count
    shares: Annotated[pd.DataFrame, RowsOf(RobustShare)]
    coefficients: Annotated[pd.DataFrame, RowsOf(Overturning)]
    people: Annotated[pd.DataFrame, RowsOf(SensitivePerson)]
    found: Sensitivity = Field(exclude=True)

    @classmethod
    def of(cls, found: Sensitivity, rows: pd.Index) -> RobustClaims:
        """Return the finding in the table's words. rows: (N,) names of the table's rows."""
        people = found.table()
        people["row"] = rows[people["row"].to_numpy(dtype=np.int64)]
        return cls(
            do=dict(found.do), method=found.test, k=found.k, verdict=found.verdict, exact=found.exact, most=found.most,
            complainants=len(found.complainants), claims=int(found.claims.sum()), shares=found.shares(),
            coefficients=found.coefficients(), people=people, found=found,
        )

    @property
    def called(self) -> str:
        return self.method if self.method == "CF" else f"{self.method}, {CLAIM_NAMES[self.verdict]}"


class ClaimRobustness(Shape):
    """The robustness of one intervention's claims to errors of the causal model."""

    claims: list[RobustClaims]

    @classmethod
    def of(cls, model: SituationTesting, test: Intervention, progress: Progress | None = None) -> ClaimRobustness:
        """Measure the robustness of the cases by CST (CST w/o where nobody decides on counterfactuals), and of the significant ones
        unless they are corrected for multiple testing. CF is asked for a linear rule alone, where the answer is exact; for
        networks `--certify` says more.

        Raises QueryError as `sensitivity` does, such as for mechanisms that are not linear.
        """
        queries: list[tuple[Method, Verdict]] = [(test.ranking, "positive")]
        queries += [] if test.found.terms.correction else [(test.ranking, "significant")]
        queries += [("CF", "positive")] if isinstance(counterfactually(model.decider), LinearRule) else []
        results = [
            sensitivity(model, test.found.do, method=method, verdict=verdict, found=test.found, most=MAX_ERRORS, progress=progress)
            for method, verdict in queries
        ]
        return cls(claims=[RobustClaims.of(result, test.frame.index) for result in results])

    @property
    def name(self) -> str:
        return in_words(self.claims[0].do)

    @property
    def k(self) -> int:
        return self.claims[0].k

    @property
    def table(self) -> pd.DataFrame:
        """A line for each claim: method, k, row, claim, safe and flip (standard errors), coefficient, alone."""
        parts = [claim.people.assign(claim=CLAIM_NAMES[claim.verdict], method=claim.method, k=claim.k) for claim in self.claims]
        table = pd.concat(parts, ignore_index=True)
        return table[["method", "k", *(name for name in table if name not in ("method", "k"))]]

    def line_of(self, place: int) -> str | None:
        """Return the sentence of a case file. place: position in the table."""
        sentences = []
        for claim in self.claims:
            found = claim.found
            matches = np.flatnonzero((found.complainants == place) & found.claims)
            if not len(matches):
                continue
            n = int(matches[0])
            words = {"positive": "the case", "significant": f"its significance by {claim.method}"}
            name = "CF" if claim.method == "CF" else words[claim.verdict]
            flip = f"some {found.flip[n]:.3g} away overturn" if np.isfinite(found.flip[n]) else "none were found that overturn"
            alone = f" ({found.coefficient[n]} alone: {found.alone[n].min():.3g})" if found.coefficient[n] else ""
            sentences.append(f"{name} holds for all coefficients within {found.safe[n]:.3g} standard errors, {flip} it{alone}")
        return f"How wrong must the causal model be (k = {self.k})? {'; '.join(sentences)}." if sentences else None


class CoefficientLine(Shape):
    coefficient: str
    estimate: float
    error: float
    low: float
    high: float


class CertifiedPerson(Shape):
    row: RowName
    factual: int
    """Class decided on the row."""
    estimated: int
    """Class decided on the counterfactual at the estimated coefficients."""
    status: Literal["flips", "stays", "depends", "unknown"]
    reason: str | None
    clipped: bool
    cells: Count
    otherwise_low: Share
    """Probability, over categories of the counterfactual, that it is decided otherwise: at least, and at most."""
    otherwise_high: Share


class CertifiedStatuses(Shape):
    flips: Count
    stays: Count
    depends: Count
    unknown: Count


class CertifiedDecisions(Shape):
    """Decisions on counterfactuals for every coefficient in its interval; equations and intervals are taken as given.

    categories: nodes on the causal path; a counterfactual may have several of their values, whose probability is measured, not
    proved.
    """

    do: Do
    level: Share
    simultaneous: bool
    box: str
    coefficients: Annotated[pd.DataFrame, RowsOf(CoefficientLine)]
    categories: list[str]
    rows: Count
    counts: CertifiedStatuses
    unknown: dict[str, Count]
    """Reason -> how many."""
    clipped: Count
    seconds: Seconds
    people: Annotated[pd.DataFrame, RowsOf(CertifiedPerson)]
    depends: dict[int, Dependence]
    """Position in the table -> both decisions."""
    certificate_file: str | None = None
    saved: str | None = Field(default=None, exclude=True)
    """A note about the certificate, if one was asked for."""
    found: CertifiedCounterfactuals = Field(exclude=True)

    @classmethod
    def of(
        cls, found: CertifiedCounterfactuals, rows: pd.Index | None = None, file: Path | None = None, saved: str | None = None
    ) -> CertifiedDecisions:
        """Return the finding in the table's words. rows: (N,) names of the table's rows; None: positions."""
        people = found.table()
        if rows is not None:
            people["row"] = rows[found.rows]
        return cls(
            do=dict(found.effects.do), level=found.level, simultaneous=found.simultaneous, box=found.box,
            coefficients=found.coefficients(), categories=list(found.effects.categories), rows=len(found.rows),
            counts=CertifiedStatuses(**found.counts), unknown=found.reasons,
            clipped=int(found.clipped.sum()), seconds=found.seconds, people=people,
            depends={int(found.rows[k]): dependence for k, dependence in found.dependences.items()},
            certificate_file=str(file) if file else None, saved=saved, found=found,
        )

    @property
    def name(self) -> str:
        return in_words(self.do)

    def trust(self) -> list[str]:
        """Return the sentence that says what is proved; empty if nothing is."""
        count = self.counts.flips + self.counts.stays
        line = f"the decision on the counterfactual of {count:,} complainants under do({self.name}), for every coefficient in its"
        return [f"{line} interval ({self.box}), {self.given} taken as given"] if count else []

    @property
    def given(self) -> str:
        """Assumptions of the proofs, in words."""
        assumptions = ["the categories of counterfactuals with their probabilities"] if self.categories else []
        assumptions += ["that the schema's constraints allow the counterfactual"] if self.found.constrained else []
        return listed(["the equations", "the intervals", *assumptions])

    def line_of(self, place: int) -> str | None:
        """Return the sentence of a case file. place: position in the table."""
        matches = np.flatnonzero(self.found.rows == place)
        if not len(matches):
            return None
        status = str(self.found.status[matches[0]])
        if status in (FLIPS, STAYS):
            decision = "otherwise than the person" if status == FLIPS else "as the person is"
            exceptions = f", but for {LEFT_OUT}" if self.categories else ""
            exceptions += f"; taken as given are {self.given}" if self.categories or self.found.constrained else ""
            condition = f"whatever the coefficients are in their intervals ({self.box})"
            return f"Proved: the counterfactual is decided {decision}, {condition}{exceptions}."
        if status == DEPENDS:
            low, high = self.found.otherwise[matches[0]]
            if self.categories:
                return (
                    "The decision on the counterfactual depends on its categories, or on the coefficients within their intervals "
                    f"({self.box}): by the causal model's probabilities, taken as given, it is decided otherwise with a "
                    f"probability of {low:.3f} .. {high:.3f}."
                )
            condition = f"within their intervals ({self.box})"
            return f"The decision on the counterfactual depends on the coefficients {condition}: both are met."
        reason = REASONS[str(self.found.reason[matches[0]])]
        return f"Whether the decision on the counterfactual is the same for all coefficients is unknown: {reason}."


class CstResult(Result):
    """`verifair cst`: are similar people of the other group treated better?"""

    query: CstQuery
    equations: list[str]
    tests: list[Intervention]
    not_tested: list[str]
    """No time was left."""
    notes: list[str]
    sensitivity: list[ClaimRobustness]
    certified: list[CertifiedDecisions]
    model_sha256: Sha256 | None  # type: ignore[assignment]
    schema_sha256: Sha256 | None  # type: ignore[assignment]
    causal_sha256: Sha256 = Field(repr=False)
    model: SituationTesting = Field(exclude=True)
    causal_file: str = Field(exclude=True)
    differing: str | None = Field(exclude=True)
    """Said where who decides on the counterfactuals decides otherwise on the rows than recorded."""
    cases: tuple[tuple[Case, ...], ...] = Field(exclude=True)
    """Whose case files are written, or shown where there is no folder; by test."""
    top: int = Field(exclude=True)
    """People to review on the screen."""
    to_folder: bool = Field(exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def several(self) -> Annotated[pd.DataFrame, RowsOf(Several)]:
        """Multiple and intersectional discrimination, see `several`."""
        return several(self.tests)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def trust(self) -> MeasuredTrust:
        return MeasuredTrust(
            proved=[line for certified in self.certified for line in certified.trust()],
            measured=["shares of negative decisions, their differences and intervals, under the stated causal model"],
        )

    def folder(self, test: Intervention) -> str:
        """Return the folder, within that of --out, of an intervention's figures and cases; "" if only one is tested."""
        return f"{file_name(test.name)}/" if len(self.tests) > 1 else ""


ANSWERS = {"cst": CstResult}
