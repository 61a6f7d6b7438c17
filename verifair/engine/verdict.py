"""Three-valued answers and what stands behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from solvers.outcome import Outcome
from verifair.notebook.pictures import interval, pairs
from verifair.notebook.shown import Pictured

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from verifair.checker.certificates.certificate import Certificate


class Status(Enum):
    """PROVED: holds at every legal point.  VIOLATED: a confirmed point fails.  UNKNOWN: neither was established."""

    PROVED = "proved"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class Reason(Enum):
    """Why a verdict is UNKNOWN."""

    TIME = "time"
    NODES = "nodes"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    RELAXATION_TOO_WEAK = "relaxation-too-weak"
    WITNESS_REJECTED = "witness-rejected"
    NUMERICAL = "numerical"
    SOLVER_ERROR = "solver-error"
    MOOT = "moot"
    """A question beside it is refuted, which decides both."""
    FLOAT32 = "float32"
    """Proved of the real-valued function; at some point the margin is within the rounding of float32."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Finding(Pictured):
    """What a search or a measurement found: never a proof, and never called one.

    kind: what was measured.   value: how large it came out.   details: the rest, JSON-ready.   method, seed: how it was found.
    """

    kind: str
    value: float
    method: str
    seed: int | None
    details: dict[str, Any] = field(repr=False)

    def _draw(self, path: Path) -> None:
        interval(self.value, self.value, self.kind, path)


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdict(Pictured):
    """The answer to one query.

    lower, upper: certified lower bound on, and least value met of, the quantity that has to stay positive (NaN: not computed).
    float32: of a proof, whether it is certified for float32: its margins exceed the rounding of any float32 evaluation, whatever
    the order of the sums (False: it is about the real-valued function only); None where nothing is proved.
    outcomes: what solvers answered on the way.   semantics: which function the verdict is about.
    """

    status: Status
    reason: Reason | None
    witness: Witness | None
    certificate: Certificate | None
    lower: float
    upper: float
    engine: str
    seconds: float
    semantics: str
    outcomes: tuple[Outcome, ...] = field(repr=False)
    float32: bool | None = None

    def __post_init__(self) -> None:
        match self.status:
            case Status.PROVED:
                complete = self.certificate is not None and self.witness is None and self.reason is None
            case Status.VIOLATED:
                complete = self.witness is not None and self.certificate is None and self.reason is None
            case Status.UNKNOWN:
                complete = self.reason is not None and self.witness is None and self.certificate is None
        if not complete:
            raise ValueError(
                f"a {self.status.name} verdict needs exactly its evidence: "
                "PROVED a certificate, VIOLATED a witness, UNKNOWN a reason"
            )

    def _draw(self, path: Path) -> None:
        if self.witness is not None:
            draw_witnesses((self.witness,), path)
        else:
            interval(self.lower, self.upper, f"{self.status.value}: what has to be positive", path)


@dataclass(frozen=True, kw_only=True, repr=False)
class Witness(Pictured):
    """x, x_prime: rows in the schema's words.   outputs: the margins g(x), g(x').   decisions: what the model decides
    for each, in the schema's words; in PBA which of the two classes that are compared has the larger margin.   probabilities: of
    decision 1 in fairness queries, of the row's own class against the other one in PBA; None for a model that gives values.
    values: these; None for other models.

    margin: the value that should have been positive, shown as float64; its sign was decided in exact arithmetic.
    float32_agrees: whether onnxruntime, in float32, shows the same violation (None: the model file was not at hand).
    """

    x: dict[str, Any]
    x_prime: dict[str, Any]
    outputs: tuple[float, float]
    decisions: tuple[str, str]
    probabilities: tuple[float, float] | None
    values: tuple[float, float] | None
    margin: float
    float32_agrees: bool | None

    @property
    def shown(self) -> tuple[float, float]:
        """What the model gives for the two: probabilities, or values."""
        found = self.values or self.probabilities
        assert found is not None
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return the two rows side by side: a line for each feature, and what the model decides and gives at the end."""
        import pandas as pd

        given = "value" if self.values is not None else "probability"
        rows = [{**row, "decision": decision, given: shown}
                for row, decision, shown in zip((self.x, self.x_prime), self.decisions, self.shown, strict=True)]
        return pd.DataFrame(rows, index=pd.Index(["x", "x'"]), dtype=object).T

    def _draw(self, path: Path) -> None:
        draw_witnesses((self,), path)


def draw_witnesses(found: tuple[Witness, ...], path: Path) -> None:
    """Draw what the model gives for the two rows of each counterexample."""
    label = "value" if found and found[0].values is not None else "probability"
    pairs([one.shown for one in found], ("x", "x'"), label, path)
