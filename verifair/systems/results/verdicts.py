"""Verdicts, gaps and their questions, as parts of a result."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from solvers.outcome import Limit, Termination
from verifair.checker.certificates.statement import Scale, Signs
from verifair.engine.queries import Quantity
from verifair.engine.verdict import Reason, Status
from verifair.systems.results.result import Count, Probability, Row, Seconds, Shape, Trust


class CertificateNote(Shape):
    trust: Trust
    """checked: the certificate can be re-proved.   claimed: it records a solver's word."""


class WitnessShape(Shape):
    """An exact counterexample: two legal rows."""

    x: Row
    x_prime: Row
    outputs: Annotated[list[float], Field(min_length=2, max_length=2)]
    """Margins g(x) and g(x'), log-odds of the positive class; their signs were decided in exact arithmetic."""
    decisions: Annotated[list[str], Field(min_length=2, max_length=2)]
    """What the model decides for each; for PBA which of the two classes that are compared has the larger margin."""
    probabilities: Annotated[list[Probability], Field(min_length=2, max_length=2)] | None
    """Null for a model that gives values."""
    values: Annotated[list[float], Field(min_length=2, max_length=2)] | None
    """Outputs of a model that gives values; null for others."""
    margin: float | None
    """The quantity that should have been positive, as float64."""
    float32_agrees: bool | None
    """Whether onnxruntime shows the same in float32; null: not asked."""

    @property
    def shown(self) -> list[float]:
        """The model's outputs for the two rows: probabilities, or values."""
        return self.values or self.probabilities or []


class SolverOutcome(Shape):
    """The outcome of one solver call. Bounds are null for a feasibility question, and if there are none."""

    termination: Termination
    limit: Limit | None
    backend: str
    version: str
    tolerance: float
    """Within which its claims hold; 0: exact arithmetic."""
    primal_bound: float | None
    dual_bound: float | None
    build_seconds: Seconds
    solve_seconds: Seconds


class VerdictShape(Shape):
    """A verdict: PROVED with a certificate, VIOLATED with a witness, UNKNOWN with a reason, and none with another's evidence."""

    status: Status
    reason: Reason | None
    """The reason of an unknown; null otherwise."""
    witness: WitnessShape | None
    lower: float | None
    """Certified lower bound of what has to stay positive, a proof's margin; null: not computed."""
    upper: float | None
    """Least value met of what has to stay positive; null: none was met."""
    certificate: CertificateNote | None
    engine: str
    """The methods that decided."""
    semantics: str
    """The function that the verdict is about."""
    float32: bool | None
    """Whether a proof is certified for float32: it holds for every float32 evaluation too; null: nothing is proved."""
    seconds: Seconds
    outcomes: list[SolverOutcome]


class Gap(Shape):
    """Lower and upper bounds of the largest gap."""

    status: Literal["bounded"] = "bounded"
    reason: Reason | None
    """The reason that the bounds differ by more than the tolerance; null if they do not."""
    lower: float
    """Met by the witness, exactly."""
    upper: float | None
    """Certified; null: no bound."""
    scale: Scale
    """probability, or logit for what the model gives as it is."""
    quantity: Quantity
    witness: WitnessShape | None
    certificate: CertificateNote | None
    engine: str
    nodes: Count
    semantics: str
    seconds: Seconds


class PairQuery(Shape):
    """The query about pairs of people who are equal in all but the protected features (and `relax`)."""

    protected: list[str]
    box: dict[str, Any]
    """Feature -> value or [low, high], as asked for."""
    differ: Literal["all", "any"]
    """Pairs differ in all protected features, or in at least one."""
    relax: dict[str, int]
    """Feature -> by how many of its units it may differ as well."""


class FairnessQuery(PairQuery):
    kind: Literal["individual-fairness"] = "individual-fairness"
    epsilon: float | None
    """Allowed change of the quantity that `epsilon_of` names; null: decisions may not flip."""
    scale: Scale | None = Field(validation_alias=AliasChoices("epsilon_scale", "scale"))
    """probability, or logit for what the model gives as it is; null: asked about decisions."""
    epsilon_of: Quantity | None
    """Null: asked about decisions."""
    signs: Signs | None = Field(validation_alias=AliasChoices("rule", "signs"))
    """deployed: positive means logit > 0.   strict: a logit of 0 counts on neither side.   null: asked about probabilities."""
    classes: Literal["favourable", "any"]
    """favourable: the favourable decision flips.   any: any of several classes becomes another."""
    arithmetic: Literal["real", "float32"]
    """float32: proofs must hold for every float32 evaluation as well."""


class GapQuery(PairQuery):
    kind: Literal["probability-gap"] = "probability-gap"
    scale: Scale
    """probability, or logit for what the model gives as it is."""
    quantity: Quantity
