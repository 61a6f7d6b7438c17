"""The public names and their homes: type checkers read them here, and so does `verifair/__init__.py`."""

from encoders.network import Network as Network
from encoders.onnx.file import save_onnx as save_onnx
from encoders.onnx.reader import read_model as read_model
from encoders.onnx.reader import read_onnx as read_onnx
from solvers.outcome import Budget as Budget
from solvers.outcome import Outcome as Outcome
from verifair.auditing.audit import Audit as Audit
from verifair.auditing.audit import audit as audit
from verifair.checker.certificates.certificate import Certificate as Certificate
from verifair.checker.certificates.consistency import ConsistencyCertificate as ConsistencyCertificate
from verifair.checker.certificates.envelope import Trust as Trust
from verifair.checker.certificates.kmax import KmaxCertificate as KmaxCertificate
from verifair.checker.certificates.share import ShareCertificate as ShareCertificate
from verifair.engine.buckets.kmax import KmaxVerdict as KmaxVerdict
from verifair.engine.cluster import cluster as cluster
from verifair.engine.counterexamples import Counterexamples as Counterexamples
from verifair.engine.counterexamples import counterexamples as counterexamples
from verifair.engine.gap.maximise import MaximumGap as MaximumGap
from verifair.engine.partition import certify_partition as certify_partition
from verifair.engine.queries import IndividualFairness as IndividualFairness
from verifair.engine.queries import KDiscrimination as KDiscrimination
from verifair.engine.queries import PersistentBias as PersistentBias
from verifair.engine.queries import ProbabilityGap as ProbabilityGap
from verifair.engine.queries import Robustness as Robustness
from verifair.engine.shares.share import CertifiedShare as CertifiedShare
from verifair.engine.shares.share import certify_share as certify_share
from verifair.engine.verdict import Finding as Finding
from verifair.engine.verdict import Reason as Reason
from verifair.engine.verdict import Status as Status
from verifair.engine.verdict import Verdict as Verdict
from verifair.engine.verdict import Witness as Witness
from verifair.models.compare import ImportDifference as ImportDifference
from verifair.models.read import read as read
from verifair.notebook.progress import progress_bar as progress_bar
from verifair.schema.drafts.infer import DraftWarning as DraftWarning
from verifair.schema.schema import Feature as Feature
from verifair.schema.schema import Schema as Schema
from verifair.systems.cec.certified import certify_consistency as certify_consistency
from verifair.systems.cec.estimator import ExplanationConsistency as ExplanationConsistency
from verifair.systems.check import check as check
from verifair.systems.cst.causal.model import CausalModel as CausalModel
from verifair.systems.cst.estimator import SituationTesting as SituationTesting
from verifair.systems.cst.robustness.certified import certify_counterfactuals as certify_counterfactuals
from verifair.systems.fgce.estimator import GroupCounterfactuals as GroupCounterfactuals
from verifair.systems.hyfair.certify.partition import partition_summary as partition_summary
from verifair.systems.hyfair.certify.result import PartitionSummary as PartitionSummary
from verifair.systems.hyfair.search.annealing import search_clusters as search_clusters
from verifair.systems.hyfair.search.clusters import ClusterSearch as ClusterSearch
from verifair.systems.verify import verify as verify

__version__: str
HOMES: dict[str, str]
