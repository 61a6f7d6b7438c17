"""verifair: proofs, exact counterexamples and bounds for the fairness of trained neural networks.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(network=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from encoders.network import Network
from encoders.onnx_reader import read_onnx
from solvers.outcome import Budget, Outcome
from verifair.bias.rows import verify_rows
from verifair.parallel import cluster
from verifair.queries import IndividualFairness, KDiscrimination, PersistentBias, ProbabilityGap, Robustness
from verifair.report.partition import PartitionSummary
from verifair.report.partition import summary as partition_summary
from verifair.schema import Feature, Schema
from verifair.search.annealing import search as search_clusters
from verifair.search.clusters import ClusterSearch
from verifair.verdict import Finding, Reason, Status, Verdict
from verifair.verify.api import verify
from verifair.verify.certificate import Certificate, Trust
from verifair.verify.check import check
from verifair.verify.check_consistency import check_consistency
from verifair.verify.check_kmax import check_kmax
from verifair.verify.check_partition import check_partition
from verifair.verify.consistency_certificate import ConsistencyCertificate
from verifair.verify.kmax import kmax
from verifair.verify.kmax_certificate import KmaxCertificate
from verifair.verify.kmax_verdict import KmaxVerdict
from verifair.verify.maximise import MaximumGap, maximise
from verifair.verify.partitioned import certify_partition
from verifair.witness import Witness

if TYPE_CHECKING:
    from verifair.consistency.certified import certify_consistency
    from verifair.consistency.estimator import ExplanationConsistency
    from verifair.group.estimator import GroupCounterfactuals
    from verifair.situation.causal.model import CausalModel
    from verifair.situation.estimator import SituationTesting
    from verifair.situation.robustness.certified import certify_counterfactuals

LATER = {
    "CausalModel": "verifair.situation.causal.model",
    "ExplanationConsistency": "verifair.consistency.estimator",
    "GroupCounterfactuals": "verifair.group.estimator",
    "SituationTesting": "verifair.situation.estimator",
    "certify_consistency": "verifair.consistency.certified",
    "certify_counterfactuals": "verifair.situation.robustness.certified",
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
