"""CEC training: the objective, six baselines, merit-only and the excess above floors, on one architecture and by one loop.

Needs the extra torch, and fairlearn for two baselines; importing does not.
"""

from verifair.systems.cec.training.baselines import METHODS, OURS, ColumnRoles, train_decider
from verifair.systems.cec.training.consistent import ConsistencyReport, Consistent, train
from verifair.systems.cec.training.decider import TrainedDecider, audit_decider
from verifair.systems.cec.training.settings import CEC_LOOP, EXCESS_TERMS, ConsistencyTerms

__all__ = [
    "CEC_LOOP", "EXCESS_TERMS", "METHODS", "OURS", "ColumnRoles", "ConsistencyReport", "ConsistencyTerms", "Consistent",
    "TrainedDecider", "audit_decider", "train", "train_decider",
]
