"""Training of the networks that PBA audits. Needs the extra: pip install "verifair[torch]"; importing does not."""

from verifair.training.measure import TrainingReport
from verifair.training.settings import METHODS, Settings, settings_for
from verifair.training.trainer import TrainedModel, train

__all__ = ["METHODS", "Settings", "TrainedModel", "TrainingReport", "settings_for", "train"]
