"""The settings of CEC training, with the paper's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from verifair.errors import TrainingError
from verifair.schema.schema import Schema
from verifair.training.settings import Choices, Loop, TrainingSettings, chosen, only_protected

CEC_LOOP = Loop(hidden=(128, 64), epochs=30, batch=64, learning_rate=3e-4, dropout=0.2)
"""CEC, "Implementation Details": its own networks and all its baselines."""


@dataclass(frozen=True, kw_only=True)
class ConsistencyTerms:
    """Weights and parameters of the terms of CEC training.  (CEC, "Training Objective")

    lambda_eo: weight of the squared gaps of equalized odds. lambda_cec: weight of the mean squared score. steps: T of the
    Riemann sum. tau: farthest match, in standard deviations of merit; None: no limit.

    Ours, not in the paper: lambda_excess: weight of the excess, the mean squared score across groups less that within the own
    group, towards 0. every: explain in every n-th step, with n times the weight. auc_loss: floors under AUC and variance,
    see `floors`: the AUC may be lower than the plain network's by this much, and the variance of p(1 | x) is at least
    `variance_share` of the plain network's; None: no floors.
    """

    lambda_eo: float = 1.0
    lambda_cec: float = 1.0
    steps: int = 32
    tau: float | None = None
    lambda_excess: float = 0.0
    every: int = 1
    auc_loss: float | None = None
    variance_share: float = 0.5

    def __post_init__(self) -> None:
        for name in ("lambda_eo", "lambda_cec", "lambda_excess"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise TrainingError(f"{name} = {getattr(self, name)}, expected a number of at least 0, such as 1")
        if not 1 <= self.steps <= 1000:  # memory grows with them
            raise TrainingError(f"steps = {self.steps}, expected 1 to 1000, such as the paper's 32")
        if self.tau is not None and not 0 < self.tau < float("inf"):
            raise TrainingError(f"tau = {self.tau}, expected a positive distance in standard deviations of merit, or none at all")
        if not 1 <= self.every <= 100:
            raise TrainingError(f"every = {self.every}, expected 1 to 100: explain in one of so many steps")
        if self.auc_loss is not None and not 0 <= self.auc_loss < 0.5:
            raise TrainingError(f"auc_loss = {self.auc_loss}, expected at least 0 and below 0.5, such as 0.02")
        if not 0 <= self.variance_share <= 1:
            raise TrainingError(f"variance_share = {self.variance_share}, expected a share of the plain variance, such as 0.5")

    @property
    def explains(self) -> bool:
        """True if the training computes explanations."""
        return self.lambda_cec > 0 or self.lambda_excess > 0


EXCESS_TERMS = ConsistencyTerms(lambda_excess=1.0, every=2, auc_loss=0.01)
"""Terms of our method `excess`."""


@dataclass(frozen=True, kw_only=True)
class CecTrainingSettings(TrainingSettings):
    """Settings of a training for CE + lambda_eo equalized_odds + lambda_cec explanation_gap.

    sensitive: any column of the table, also one that is no input.   lambda_f: 0, as this method has none.
    """

    consistency: ConsistencyTerms

    def __post_init__(self) -> None:
        if self.lambda_f != 0:
            raise TrainingError("cec has no lambda_f; its weights are lambda_eo and lambda_cec")
        super().__post_init__()

    @classmethod
    def of(
        cls, schema: Schema, *, sensitive: str | None, consistency: ConsistencyTerms, **choices: Unpack[Choices]
    ) -> CecTrainingSettings:
        """Return settings with the paper's loop (CEC_LOOP) where nothing else is chosen. sensitive: the schema's only protected
        feature."""
        return cls(
            method="cec", sensitive=sensitive or only_protected(schema, "cec"), consistency=consistency, **chosen(CEC_LOOP, choices)
        )
