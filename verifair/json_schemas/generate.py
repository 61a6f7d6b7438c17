"""Writes the schemas: python -m verifair.json_schemas.generate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from verifair.audit.result import AuditResult
from verifair.checker import certificate, consistency_certificate, kmax_certificate
from verifair.interop import certificate as vnnlib_certificate
from verifair.json_schemas import SUFFIX, bench, tools, verdicts
from verifair.systems.cec.result import CecResult
from verifair.systems.cst.result import CstResult
from verifair.systems.fgce.result import FgceResult
from verifair.systems.hyfair.certify.result import MaximumResult, PartitionResult, TargetedResult, VerdictResult
from verifair.systems.hyfair.explain.result import ExplainResult
from verifair.systems.hyfair.guard.result import GuardResult
from verifair.systems.hyfair.kmax.result import KmaxResult
from verifair.systems.pba.result import PbaResult
from verifair.systems.system import SYSTEMS

SHAPES: dict[str, tuple[str, TypeAdapter[Any]]] = {
    "certify": ("verifair certify --json", TypeAdapter(VerdictResult)),
    "certify-targeted": ("verifair certify --targeted --json", TypeAdapter(TargetedResult)),
    "certify-partition": ("verifair certify --partition --json", TypeAdapter(PartitionResult)),
    "certify-maximise": ("verifair certify --maximise --json", TypeAdapter(MaximumResult)),
    "kmax": ("verifair kmax --json", TypeAdapter(KmaxResult)),
    "pba": ("verifair pba --json", TypeAdapter(PbaResult)),
    "explain": ("verifair explain --json", TypeAdapter(ExplainResult)),
    "guard": ("verifair guard --json", TypeAdapter(GuardResult)),
    "fgce": ("verifair fgce --json", TypeAdapter(FgceResult)),
    "cec": ("verifair cec --json", TypeAdapter(CecResult)),
    "cst": ("verifair cst --json", TypeAdapter(CstResult)),
    "verify": ("verifair verify --json", TypeAdapter(verdicts.Verify)),
    "check": ("verifair check --json", TypeAdapter(tools.Check)),
    "doctor": ("verifair doctor --json", TypeAdapter(tools.Doctor)),
    "export": ("verifair export --json", TypeAdapter(tools.Export)),
    "train": ("verifair train --json", TypeAdapter(tools.Train)),
    "audit": ("verifair audit: the JSON beside the page", TypeAdapter(AuditResult)),
    "bench": ("verifair bench --json", TypeAdapter(bench.Bench)),
    "bench-list": ("verifair bench --list --json", TypeAdapter(bench.BenchList)),
    "certificate": ("Files of proofs about fairness, bias, robustness and counterfactuals", certificate.FILE),
    "kmax-certificate": ("Files of proofs of an upper bound of k", kmax_certificate.FILE),
    "vnnlib-certificate": ("Files of proofs that a VNN-LIB query is unsat", vnnlib_certificate.FILE),
    "consistency-certificate": ("Files of proofs of consistent explanations", consistency_certificate.FILE),
}
"""Name -> what it is about, and the type that it is made of."""


def generated(name: str) -> str:
    """The schema of this name as its file should be."""
    title, adapter = SHAPES[name]
    of_a_system = title.endswith("--json") and name.split("-")[0] in SYSTEMS
    made = _plain(adapter.json_schema(mode="serialization" if of_a_system else "validation"))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:verifair:json:{name}", "title": title}
    return json.dumps({**head, **made}, indent=2, ensure_ascii=False) + "\n"


def _plain(node: Any, *, named: bool = False) -> Any:
    """Without what pydantic adds for other readers. named: the keys of this object are names, not keywords."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    if named:
        return {name: _plain(value) for name, value in node.items()}
    kept = {key: value for key, value in node.items() if key not in ("title", "default", "discriminator", "readOnly")}
    return {key: _plain(value, named=key in ("properties", "$defs")) for key, value in kept.items()}


def main() -> None:
    folder = Path(__file__).parent
    for file in folder.glob(f"*{SUFFIX}"):
        if file.name.removesuffix(SUFFIX) not in SHAPES:
            file.unlink()
    for name in SHAPES:
        (folder / f"{name}{SUFFIX}").write_text(generated(name), encoding="utf-8")


if __name__ == "__main__":
    main()
