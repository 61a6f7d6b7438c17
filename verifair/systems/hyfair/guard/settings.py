"""The settings of `guard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from verifair.systems.hyfair.pairs import VariantSettings
from verifair.systems.settings import Option, Outside, Positive
from verifair.systems.system import System


class GuardSettings(VariantSettings):
    """The settings of `verifair guard`: the refused inputs, and retraining (HyFair, mitigation)."""

    belongs: ClassVar = {
        **dict.fromkeys(("epochs", "learning_rate"), (("retrain", None),)), "certificate": (("target", None),),
    }
    rules: Path | None = None
    """rules.json of `verifair explain`, or your own."""
    target: float | None = None
    """Find the rules: the model answers only where the probability gap is proved to be at most this."""
    guarded: Annotated[Path | None, Option(name="--out")] = None
    """Guarded model to write, NAME.onnx; its schema goes to NAME.toml."""
    retrain: Path | None = None
    """Write the retrained network here (NAME.onnx)."""
    epochs: Annotated[int, Field(ge=1)] = 5
    """Epochs of retraining."""
    learning_rate: Positive = 1e-3
    """Learning rate of retraining."""
    iterations: Annotated[int, Field(ge=1)] = 500
    """Number of steps of each search, before and after."""
    outside: Outside = "error"

    @model_validator(mode="after")
    def _named(self) -> GuardSettings:
        if self.guarded is None or (self.rules is None and self.target is None):
            raise ValueError("guard needs --out NAME.onnx, and --rules FILE (of `verifair explain`) or --target GAP")
        for file in (self.guarded, self.retrain):
            if file is not None and file.suffix != ".onnx":
                raise ValueError(f"{file}: a network is written as NAME.onnx; end the name in .onnx")
        return self

    @property
    def files(self) -> dict[str, Path | None]:
        return {"--out": self.guarded, "--retrain": self.retrain}

    @property
    def out(self) -> Path:
        """The guarded model's file."""
        assert self.guarded is not None
        return self.guarded


SYSTEM = System(
    verb="guard",
    help="""
Writes a model that abstains from the inputs that its rules describe. GUARDED.onnx has an output `abstain` (true: no answer; the
other outputs are then NaN); GUARDED.toml is the schema without these rows, for `verifair certify`. With --target verifair finds
the rules: the model answers where a proof succeeds, and abstains elsewhere. --retrain also continues the training of a ReLU
network with discriminatory instances, all variants of which get the same label.

Example: verifair guard german.onnx --schema german.toml --rules explain/rules.json --data german.csv --out guarded.onnx
""",
    settings=GuardSettings,
    run=("certificate", "timeout", "seed", "json_file"),
    defaults={"timeout": 300.0},
    helps={"data": "Table to measure accuracy and abstention on.", "certificate": "With --target: write the proof (.json.gz)."},
)
