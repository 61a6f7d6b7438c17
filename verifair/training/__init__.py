"""Training of the networks that PBA audits. Needs the extra: pip install "verifair[torch]"; importing does not.

Independent of the systems: CEC's own training is in `verifair.systems.cec.training`.
"""

from verifair.training.measure import TrainingReport
from verifair.training.settings import METHODS, Choices, Loop, TrainingSettings, settings_for
from verifair.training.trainer import TrainedModel, train

__all__ = ["METHODS", "Choices", "Loop", "TrainedModel", "TrainingReport", "TrainingSettings", "settings_for", "train"]
