"""The CEC paper's baselines: unconstrained, Disparate Impact Remover, Hardt, Agarwal, adversarial, Lagrangian; and CEC itself.

Needs the extras torch and fairlearn; importing does not.
"""

from verifair.training.baselines.decider import Decider, audit_decider
from verifair.training.baselines.train import METHODS, Columns, train_decider

__all__ = ["METHODS", "Columns", "Decider", "audit_decider", "train_decider"]
