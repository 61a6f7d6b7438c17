"""verifair: proofs, exact counterexamples and bounds for the fairness of trained neural networks.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(network=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget, Outcome
from verifair.checker.certificate import Certificate
from verifair.checker.check import check
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.checker.envelope import Trust
from verifair.checker.kinds.consistency import check_consistency
from verifair.checker.kinds.kmax import check_kmax
from verifair.checker.kinds.partition import check_partition
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.engine.buckets.kmax import kmax
from verifair.engine.buckets.verdict import KmaxVerdict
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.parallel import cluster
from verifair.engine.partition import certify_partition
from verifair.engine.queries import IndividualFairness, KDiscrimination, PersistentBias, ProbabilityGap, Robustness
from verifair.engine.verdict import Finding, Reason, Status, Verdict, Witness
from verifair.engine.verify import verify
from verifair.schema.schema import Feature, Schema
from verifair.systems.hyfair.search.annealing import search as search_clusters
from verifair.systems.hyfair.search.clusters import ClusterSearch
from verifair.systems.hyfair.share import PartitionSummary
from verifair.systems.hyfair.share import summary as partition_summary
from verifair.systems.pba.rows import verify_rows

if TYPE_CHECKING:
    from verifair.systems.cec.certified import certify_consistency
    from verifair.systems.cec.estimator import ExplanationConsistency
    from verifair.systems.cst.causal.model import CausalModel
    from verifair.systems.cst.estimator import SituationTesting
    from verifair.systems.cst.robustness.certified import certify_counterfactuals
    from verifair.systems.fgce.estimator import GroupCounterfactuals

LATER = {
    "CausalModel": "verifair.systems.cst.causal.model",
    "ExplanationConsistency": "verifair.systems.cec.estimator",
    "GroupCounterfactuals": "verifair.systems.fgce.estimator",
    "SituationTesting": "verifair.systems.cst.estimator",
    "certify_consistency": "verifair.systems.cec.certified",
    "certify_counterfactuals": "verifair.systems.cst.robustness.certified",
}
"""Name -> its module, loaded when the name is asked for: scikit-learn and scipy.stats below them take longer than all the rest."""

__version__ = "0.1.0"
__all__ = [
    "Budget",
    "CausalModel",
    "Certificate",
    "ClusterSearch",
    "ConsistencyCertificate",
    "ExplanationConsistency",
    "Feature",
    "Finding",
    "GroupCounterfactuals",
    "IndividualFairness",
    "KDiscrimination",
    "KmaxCertificate",
    "KmaxVerdict",
    "MaximumGap",
    "Network",
    "Outcome",
    "PartitionSummary",
    "PersistentBias",
    "ProbabilityGap",
    "Reason",
    "Robustness",
    "Schema",
    "SituationTesting",
    "Status",
    "Trust",
    "Verdict",
    "Witness",
    "certify_consistency",
    "certify_counterfactuals",
    "certify_partition",
    "check",
    "check_consistency",
    "check_kmax",
    "check_partition",
    "cluster",
    "kmax",
    "maximise",
    "partition_summary",
    "read_onnx",
    "search_clusters",
    "verify",
    "verify_rows",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})


def __getattr__(name: str) -> object:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
