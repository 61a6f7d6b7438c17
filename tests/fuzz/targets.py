"""All readers that are fuzzed, by name."""

from __future__ import annotations

from tests.fuzz.certificate_target import CertificateTarget, PartitionTarget
from tests.fuzz.onnx_target import OnnxTarget
from tests.fuzz.store_target import ResumeTarget, StoreTarget
from tests.fuzz.target import Target
from tests.fuzz.text_targets import CausalTarget, RulesTarget, SchemaTarget, TableTarget

EVERY: tuple[Target, ...] = (
    OnnxTarget(),
    SchemaTarget(),
    CausalTarget(),
    TableTarget(),
    RulesTarget(),
    CertificateTarget(),
    PartitionTarget(),
    StoreTarget(),
    ResumeTarget(),
)
TARGETS: dict[str, Target] = {one.name: one for one in EVERY}
