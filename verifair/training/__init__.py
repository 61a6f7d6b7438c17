"""Training of the networks that PBA and CEC audit. Needs the extra: pip install "verifair[torch]"; importing does not."""

from verifair.training.explained import Consistent
from verifair.training.measure import TrainingReport
from verifair.training.settings import CEC_LOOP, METHODS, Consistency, Loop, Settings, settings_for
from verifair.training.trainer import TrainedModel, train

__all__ = [
    "CEC_LOOP",
    "METHODS",
    "Consistency",
    "Consistent",
    "Loop",
    "Settings",
    "TrainedModel",
    "TrainingReport",
    "settings_for",
    "train",
]
