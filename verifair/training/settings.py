"""Settings of a training run, and the papers' values for three datasets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypedDict, Unpack

from verifair.errors import TrainingError
from verifair.schema.schema import Schema

METHODS = ("agnostic", "certifair", "fair-n")


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """Settings of the training loop.

    epochs: passes over the training rows. batch: rows a step. learning_rate: Adam's. dropout: share of every hidden
    layer's neurons that a step leaves out. seed: of every random draw. threads: torch's CPU threads; the order of sums
    depends on them, and with it the last bits.
    """

    epochs: int
    batch: int
    learning_rate: float
    seed: int = 0
    threads: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "threads"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} = {getattr(self, name)}, expected at least 1")
        if not 0 < self.learning_rate < float("inf"):
            raise TrainingError(f"learning_rate = {self.learning_rate}, expected a positive number, such as 0.001")
        if not 0 <= self.seed < 2**63:
            raise TrainingError(f"seed = {self.seed}, expected a whole number in 0 .. 2^63 - 1")
        if not 0 <= self.dropout < 1:
            raise TrainingError(f"dropout = {self.dropout}, expected a share of neurons of at least 0 and below 1, such as 0.2")


@dataclass(frozen=True, kw_only=True)
class Loop(GradientDescent):
    """A network's training from its first, random weights. hidden: widths of the ReLU layers."""

    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise TrainingError(f"hidden = {self.hidden}, expected one width or more, each at least 1, e.g. (100, 50)")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Loop):
    """Everything that determines the weights, given the data, the machine and torch's version.

    method: "agnostic" (cross-entropy CE), "certifair" ((1 - lambda_f) CE + lambda_f counterfactual_gap) or "fair-n"
    (CE + lambda_f margin_gap). sensitive: the feature of the fair methods; None for agnostic. lambda_f: weight of the
    fairness term, 0 for agnostic. class_weight: None, or "balanced": each class weighs rows / (2 rows of the class) in the
    cross-entropy.
    """

    method: str
    sensitive: str | None
    lambda_f: float
    class_weight: str | None

    def __post_init__(self) -> None:
        if self.method == "agnostic" and (self.sensitive is not None or self.lambda_f != 0):
            raise TrainingError(
                "agnostic training looks at no sensitive feature; drop --sensitive and --lambda-f, or choose another --method"
            )
        super().__post_init__()
        top = 1.0 if self.method == "certifair" else float("inf")
        if not 0 <= self.lambda_f <= top:
            raise TrainingError(f"--lambda-f {self.lambda_f}: for {self.method} expected a number in 0 .. {top:g}")
        if self.class_weight not in (None, "balanced"):
            raise TrainingError(f"class_weight = {self.class_weight!r}, expected None or 'balanced'")

    def plain(self) -> dict[str, Any]:
        """Return the settings as JSON values. A dropout of 0 is left out: a network's file holds its settings, and must stay the
        same, byte for byte, as before dropout existed."""
        content = {**asdict(self), "hidden": list(self.hidden)}
        return {name: value for name, value in content.items() if value or name != "dropout"}


class Choices(TypedDict, total=False):
    """The settings that a caller may choose; None or absence means the method's default."""

    hidden: tuple[int, ...] | None
    epochs: int | None
    batch: int | None
    learning_rate: float | None
    dropout: float | None
    lambda_f: float | None
    class_weight: str | None
    seed: int
    threads: int


def chosen(loop: Loop, choices: Choices) -> dict[str, Any]:
    """Return the fields of `TrainingSettings` except method and sensitive: as chosen, else the loop's, without a fairness term."""
    values = {name: value for name, value in choices.items() if value is not None}
    return {**asdict(loop), "lambda_f": 0.0, "class_weight": None, **values}


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    """certifair: the paper's lambda_f of that method. epochs and batch are ours, as the paper gives none.

    Networks memorise German's 800 training rows from 30 epochs on; 20 epochs with batch 128 were best in
    5-fold cross-validation.
    """

    epochs: int
    batch: int
    certifair: float | None


RECIPES = {
    "adult": _Recipe(epochs=20, batch=256, certifair=0.95),
    "adult-balanced": _Recipe(epochs=20, batch=256, certifair=0.95),
    "compas": _Recipe(epochs=40, batch=64, certifair=0.9),
    "german": _Recipe(epochs=20, batch=128, certifair=0.2),
}
DEFAULT_RECIPE = _Recipe(epochs=40, batch=64, certifair=None)


def settings_for(
    dataset: str, schema: Schema, *, method: str, sensitive: str | None = None, **choices: Unpack[Choices]
) -> TrainingSettings:
    """Return complete settings: as chosen, else the papers' values or, where the papers give none, ours.

    sensitive: by default the schema's only protected feature. lambda_f: PBA's A.3, which for CertiFair has a
    value for each dataset, and 1 for Fair-N. hidden is (500, 100), learning_rate 1e-3, dropout 0. Raises TrainingError,
    or SchemaError for a feature that is unknown or cannot be flipped.

    The paper (PBA, A.3) leaves open: epochs, batch size, initial weights, which scale |f(x) - f(x')| is taken on, how
    CertiFair's weighted sum is formed, sensitive attributes with more than two values, and whether classes were
    balanced (Table 1's positive rates near 50 % on Adult, where a quarter of the rows is positive, suggest so:
    class_weight="balanced"). Here: epochs and batch by dataset; Glorot-uniform weights and zero biases; probabilities;
    a convex combination, as in CertiFair's own code; counterfactual values drawn evenly among the other ones; the mean
    over pairs of groups.
    """
    if method not in METHODS:
        raise TrainingError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    recipe = RECIPES.get(dataset, DEFAULT_RECIPE)
    fields = chosen(Loop(hidden=(500, 100), epochs=recipe.epochs, batch=recipe.batch, learning_rate=1e-3), choices)
    if method != "agnostic":
        sensitive = sensitive or only_protected(schema, method)
        _check_flip(schema, sensitive)
        if choices.get("lambda_f") is None:
            fields["lambda_f"] = 1.0 if method == "fair-n" else recipe.certifair
        if fields["lambda_f"] is None:
            raise TrainingError(
                f"the paper has no weight lambda_f of certifair for the dataset {dataset!r}: pass --lambda-f (in Python lambda_f) "
                "in 0 .. 1"
            )
    return TrainingSettings(method=method, sensitive=sensitive, **fields)


def only_protected(schema: Schema, method: str) -> str:
    """Return the schema's only protected feature. Raises TrainingError if it has none, or several."""
    protected = schema.protected_names
    if len(protected) == 1:
        return protected[0]
    reason = f"the schema marks {', '.join(protected)}" if protected else "the schema marks none"
    raise TrainingError(
        f"method {method!r} needs one sensitive feature, and {reason} as protected: pass sensitive=... or --sensitive NAME"
    )


def _check_flip(schema: Schema, name: str) -> None:
    if len(schema.values(name)) < 2:
        raise TrainingError(f"feature {name!r} has a single legal value, so nothing can be flipped; widen its range or categories")
