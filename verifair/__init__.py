"""verifair: proofs, exact counterexamples and bounds for the fairness of trained neural networks.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(network=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from verifair._siblings import check_siblings

check_siblings()

if TYPE_CHECKING:  # the same names as in HOMES
    from encoders.network import Network as Network
    from encoders.onnx.reader import read_onnx as read_onnx
    from solvers.outcome import Budget as Budget
    from solvers.outcome import Outcome as Outcome
    from verifair.checker.certificate import Certificate as Certificate
    from verifair.checker.check import check as check
    from verifair.checker.consistency_certificate import ConsistencyCertificate as ConsistencyCertificate
    from verifair.checker.envelope import Trust as Trust
    from verifair.checker.kmax_certificate import KmaxCertificate as KmaxCertificate
    from verifair.engine.buckets.kmax import KmaxVerdict as KmaxVerdict
    from verifair.engine.counterexamples import Counterexamples as Counterexamples
    from verifair.engine.counterexamples import counterexamples as counterexamples
    from verifair.engine.gap.maximise import MaximumGap as MaximumGap
    from verifair.engine.parallel import cluster as cluster
    from verifair.engine.partition import certify_partition as certify_partition
    from verifair.engine.queries import IndividualFairness as IndividualFairness
    from verifair.engine.queries import KDiscrimination as KDiscrimination
    from verifair.engine.queries import PersistentBias as PersistentBias
    from verifair.engine.queries import ProbabilityGap as ProbabilityGap
    from verifair.engine.queries import Robustness as Robustness
    from verifair.engine.verdict import Finding as Finding
    from verifair.engine.verdict import Reason as Reason
    from verifair.engine.verdict import Status as Status
    from verifair.engine.verdict import Verdict as Verdict
    from verifair.engine.verdict import Witness as Witness
    from verifair.schema.schema import Feature as Feature
    from verifair.schema.schema import Schema as Schema
    from verifair.systems.cec.certified import certify_consistency as certify_consistency
    from verifair.systems.cec.estimator import ExplanationConsistency as ExplanationConsistency
    from verifair.systems.cst.causal.model import CausalModel as CausalModel
    from verifair.systems.cst.estimator import SituationTesting as SituationTesting
    from verifair.systems.cst.robustness.certified import certify_counterfactuals as certify_counterfactuals
    from verifair.systems.fgce.estimator import GroupCounterfactuals as GroupCounterfactuals
    from verifair.systems.hyfair.certify.result import PartitionSummary as PartitionSummary
    from verifair.systems.hyfair.certify.share import summary as partition_summary
    from verifair.systems.hyfair.search.annealing import search as search_clusters
    from verifair.systems.hyfair.search.clusters import ClusterSearch as ClusterSearch
    from verifair.systems.verify import verify as verify

HOMES = {
    "Network": "encoders.network",
    "read_onnx": "encoders.onnx.reader",
    "Budget": "solvers.outcome",
    "Outcome": "solvers.outcome",
    "Certificate": "verifair.checker.certificate",
    "check": "verifair.checker.check",
    "ConsistencyCertificate": "verifair.checker.consistency_certificate",
    "Trust": "verifair.checker.envelope",
    "KmaxCertificate": "verifair.checker.kmax_certificate",
    "KmaxVerdict": "verifair.engine.buckets.kmax",
    "counterexamples": "verifair.engine.counterexamples",
    "Counterexamples": "verifair.engine.counterexamples",
    "MaximumGap": "verifair.engine.gap.maximise",
    "cluster": "verifair.engine.parallel",
    "certify_partition": "verifair.engine.partition",
    "IndividualFairness": "verifair.engine.queries",
    "KDiscrimination": "verifair.engine.queries",
    "PersistentBias": "verifair.engine.queries",
    "ProbabilityGap": "verifair.engine.queries",
    "Robustness": "verifair.engine.queries",
    "Finding": "verifair.engine.verdict",
    "Reason": "verifair.engine.verdict",
    "Status": "verifair.engine.verdict",
    "Verdict": "verifair.engine.verdict",
    "Witness": "verifair.engine.verdict",
    "Feature": "verifair.schema.schema",
    "Schema": "verifair.schema.schema",
    "certify_consistency": "verifair.systems.cec.certified",
    "ExplanationConsistency": "verifair.systems.cec.estimator",
    "CausalModel": "verifair.systems.cst.causal.model",
    "SituationTesting": "verifair.systems.cst.estimator",
    "certify_counterfactuals": "verifair.systems.cst.robustness.certified",
    "GroupCounterfactuals": "verifair.systems.fgce.estimator",
    "search_clusters": "verifair.systems.hyfair.search.annealing:search",
    "ClusterSearch": "verifair.systems.hyfair.search.clusters",
    "PartitionSummary": "verifair.systems.hyfair.certify.result",
    "partition_summary": "verifair.systems.hyfair.certify.share:summary",
    "verify": "verifair.systems.verify",
}
"""Public name -> its module, and its name there where that is another. A module is loaded when a name of it is asked for."""

__version__ = "0.1.0"
__all__ = list(HOMES)


def __dir__() -> list[str]:
    return sorted(HOMES)


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own = HOMES[name].partition(":")
    return getattr(import_module(module), own or name)
