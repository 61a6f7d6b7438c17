"""Three-valued answers with their evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from solvers.outcome import Outcome
from verifair.notebook.pictures import interval, pairs
from verifair.notebook.shown import Pictured
from verifair.schema.feature import text
from verifair.schema.naming import beside

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from verifair.checker.certificates.certificate import Certificate


class Status(Enum):
    """PROVED: the goal holds at every legal point.  VIOLATED: it fails at a confirmed point.  UNKNOWN: neither was shown."""

    PROVED = "proved"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class Reason(Enum):
    """The reason why a verdict is UNKNOWN: a limit was reached (TIME, NODES, MEMORY), Ctrl-C, or what is said below."""

    TIME = "time"
    NODES = "nodes"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    RELAXATION_TOO_WEAK = "relaxation-too-weak"
    """An incomplete method neither proved nor refuted the goal."""
    WITNESS_REJECTED = "witness-rejected"
    """Exact evaluation did not confirm a solver's counterexample."""
    NUMERICAL = "numerical"
    """Floats or balls could not decide a number so near to a border."""
    SOLVER_ERROR = "solver-error"
    MOOT = "moot"
    """Another question of the same group is refuted, which decides the group."""
    FLOAT32 = "float32"
    """Proved for the real-valued function only: at some point the margin is smaller than the rounding error of float32."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Finding(Pictured):
    """The result of a search or a measurement; it is not a proof.

    kind: what was measured.   value: the number found.   details: more results, ready for JSON.   method, seed: how it was found.
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

    status with its evidence: PROVED has a certificate, VIOLATED a witness, UNKNOWN a reason.
    lower, upper: a certified lower bound of the quantity that must stay positive, and its smallest value found (NaN: not computed).
    float32: True if a proof is certified for float32, that is, holds for every float32 evaluation in any order of summation
    (False: for the real-valued function only; None: nothing is proved).
    engine: the method that decided.   outcomes: answers of solvers.   semantics: the function that the verdict is about.
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
    """A counterexample: two legal rows x and x', with the model's outputs for each.

    x, x_prime: the rows, in the schema's words.   outputs: the margins g(x), g(x').   decisions: of the model, in the schema's
    words (PBA: the one of the two compared classes that has the larger margin).   probabilities: of decision 1 (PBA: of the row's
    own class against the other one); None for a regression model.   values: of a regression model; None for others.
    margin: the value that should have been positive, shown as float64; its sign was decided in exact arithmetic.
    float32_agrees: True if onnxruntime, in float32, shows the same violation (None: there was no model file to run).
    missing: feature -> the category of rows without a value (`Feature.missing`).
    """

    x: dict[str, Any]
    x_prime: dict[str, Any]
    outputs: tuple[float, float]
    decisions: tuple[str, str]
    probabilities: tuple[float, float] | None
    values: tuple[float, float] | None
    margin: float
    float32_agrees: bool | None
    missing: dict[str, str]

    @property
    def shown(self) -> tuple[float, float]:
        """The probabilities of the two rows, or the values of a regression model."""
        pair = self.values or self.probabilities
        assert pair is not None
        return pair

    def to_frame(self) -> pd.DataFrame:
        """Return a table with columns x and x': a line for each feature, then the decision, and the probability or value."""
        import pandas as pd

        name = "value" if self.values is not None else "probability"
        rows = [{**row, **beside({"decision": decision, name: shown}, row)}
                for row, decision, shown in zip((self.x, self.x_prime), self.decisions, self.shown, strict=True)]
        return pd.DataFrame(rows, index=pd.Index(["x", "x'"]), dtype=object).T

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return both rows as input of a model that was fitted on this table: with its columns and its own values of categories.

        Codes and booleans, such as 1 and False, are words in x and x_prime, and so are missing values, which are given back as the
        table has them (None and NaN, where a model knows both), or else as NaN. A feature may be columns feature_category of 0 and
        1, as `pandas.get_dummies` makes them. Columns that are no features are left out.
        """
        import pandas as pd

        frame = pd.DataFrame([self.x, self.x_prime], index=["x", "x'"], dtype=object)
        for column in (str(column) for column in table.columns if column not in frame):
            owner = max((n for n in self.x if column.startswith(f"{n}_") and n not in table), key=len, default=None)
            if owner is not None and column in table and table[column].isin((0, 1)).all():
                frame[column] = (frame[owner] == column[len(owner) + 1 :]).astype(table[column].dtype)
        frame = frame[[name for name in table.columns if name in frame]].infer_objects()
        for name in frame:
            if isinstance(self.x.get(name), str):
                cells = table[name].unique()
                missing = [value for value in cells if pd.isna(value)]
                known = {str(value): value for value in missing} | {text(value): value for value in cells if not pd.isna(value)}
                if name in self.missing:
                    known[self.missing[name]] = (missing or [float("nan")])[0]
                values = [known.get(word, word) for word in (self.x[name], self.x_prime[name])]
                frame[name] = pd.Series(values, index=frame.index, dtype=table[name].dtype)
        return frame

    def _draw(self, path: Path) -> None:
        draw_witnesses((self,), path)


def draw_witnesses(witnesses: tuple[Witness, ...], path: Path) -> None:
    """Draw the model's outputs for the two rows of each counterexample."""
    label = "value" if witnesses and witnesses[0].values is not None else "probability"
    pairs([witness.shown for witness in witnesses], ("x", "x'"), label, path)
