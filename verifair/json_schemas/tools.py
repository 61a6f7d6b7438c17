"""check, doctor, export, train: what they say in JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from verifair.json_schemas.words import Answer, Count, Seconds, Seed, Shape, Share


class Check(Answer):
    """`verifair check`: whether a file of proofs is accepted."""

    accepted: bool
    """Every statement was proved again. False is no refutation: a solver's word cannot be proved again."""
    format: str
    statement: str
    """What the file states, in words."""
    claimed: Count
    """Statements that rest on a solver's word."""
    proofs: Count
    leaves: Count
    """Proved again."""
    rejections: list[str]
    seconds: Seconds


class Backend(Shape):
    name: str
    available: bool
    version: str | None


class Doctor(Answer):
    """`verifair doctor`: what is installed."""

    backends: list[Backend]
    packages: dict[str, str | None]
    """Package -> version; null: not installed."""
    clash: str | None
    """Packages that cannot share a process."""


class Relaxed(Shape):
    """What a version of the format could not say exactly: unsat still proves, sat has to be confirmed."""

    one: Annotated[list[str], Field(alias="1.0")]
    two: Annotated[list[str], Field(alias="2.0")]


class Export(Answer):
    """`verifair export`: VNN-LIB queries in a folder; proved when all files of one version are unsat."""

    folder: str
    files: list[str]
    relaxed: Relaxed


class Consistent(Shape):
    """Explanation consistency on the test rows: measured, no proof."""

    cec: float
    """Mean score."""
    flips: Share
    hidden: Share
    """In regime B."""
    matched: Share
    variance: float
    positive: Share
    auc: float | None
    silent: Share
    """People without any attribution."""


class TrainReport(Shape):
    """Measured, no proof."""

    train_accuracy: Share
    test_accuracy: Share
    base_rate: Share
    """Of the more frequent class, what guessing it would score."""
    positive_rate: dict[str, dict[str, float | None]]
    """Protected feature -> group -> share decided positively."""
    counterfactual_gap: dict[str, float | None]
    """Protected feature -> mean distance of probabilities between rows and their counterfactuals."""
    margin_gap: dict[str, float | None]
    losses: list[float | None]
    """After each epoch."""
    consistency: Consistent | None
    plain: Consistent | None
    """Of the same network trained for prediction alone."""


class Train(Answer):
    """`verifair train`: a network, and what it is worth."""

    settings: dict[str, Any]
    report: TrainReport
    model: str
    """The ONNX file."""
    seed: Seed
