"""verifair: proofs, exact counterexamples and bounds for the fairness of trained neural networks.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(network=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from encoders.network import Network
from encoders.onnx_reader import read_onnx
from solvers.outcome import Budget, Outcome
from verifair.bias.rows import verify_rows
from verifair.queries import IndividualFairness, KDiscrimination, PersistentBias, ProbabilityGap, Robustness
from verifair.schema import Feature, Schema
from verifair.verdict import Finding, Reason, Status, Verdict
from verifair.verify.api import verify
from verifair.verify.certificate import Certificate, Trust
from verifair.verify.check import check
from verifair.verify.maximise import MaximumGap, maximise
from verifair.witness import Witness

__version__ = "0.1.0"
__all__ = [
    "Budget",
    "Certificate",
    "Feature",
    "Finding",
    "IndividualFairness",
    "KDiscrimination",
    "MaximumGap",
    "Network",
    "Outcome",
    "PersistentBias",
    "ProbabilityGap",
    "Reason",
    "Robustness",
    "Schema",
    "Status",
    "Trust",
    "Verdict",
    "Witness",
    "check",
    "maximise",
    "read_onnx",
    "verify",
    "verify_rows",
]
