"""All readers that are fuzzed, by name; each is imported when it is asked for."""

from importlib import import_module

from tests.fuzz.target import Target

TARGETS = {
    "onnx": "onnx_target.OnnxTarget",
    "schema": "text_targets.SchemaTarget",
    "audit": "audit_target.AuditTarget",
    "causal": "text_targets.CausalTarget",
    "table": "text_targets.TableTarget",
    "rules": "text_targets.RulesTarget",
    "vnnlib": "vnnlib_target.VnnlibTarget",
    "proof": "vnnlib_target.ProofTarget",
    "bench": "bench_target.BenchTarget",
    "kept": "bench_target.KeptTarget",
    "certificate": "certificate_target.CertificateTarget",
    "partition": "certificate_target.PartitionTarget",
    "store": "store_target.StoreTarget",
    "resume": "store_target.ResumeTarget",
}


def target(name: str) -> Target:
    module, _, kind = TARGETS[name].partition(".")
    found: Target = getattr(import_module(f"tests.fuzz.{module}"), kind)()
    return found
