"""Each training method's objective; imports torch."""

from __future__ import annotations

from verifair.training.cec import Cec
from verifair.training.explained import Explained
from verifair.training.objectives import CertiFair, CrossEntropy, FairN, Objective
from verifair.training.rows import Flip, Rows
from verifair.training.settings import Settings


def objective_for(settings: Settings, rows: Rows, flip: Flip | None, explained: Explained | None) -> Objective:
    """The objective of settings.method on these rows. flip: of settings.sensitive, for certifair; explained: for cec."""
    prediction = CrossEntropy(rows.labels, class_weight=settings.class_weight)
    if settings.method == "cec":
        assert explained is not None
        assert settings.consistency is not None
        return Cec(prediction, explained.reference, explained.matches, settings.consistency)
    if settings.sensitive is None:
        return prediction
    groups = rows.groups[settings.sensitive]
    if settings.method == "fair-n":
        return FairN(prediction, groups, settings.lambda_f)
    assert flip is not None
    return CertiFair(prediction, rows.x, groups, flip, settings.lambda_f)
