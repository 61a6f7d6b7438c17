"""verifair cst --certify LEVEL: decisions on counterfactuals, for every coefficient of the causal model in its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from solvers.outcome import Budget
from verifair.cli import options
from verifair.cli.cst_inputs import Given
from verifair.errors import QueryError
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.groups import told
from verifair.systems.cst.robustness.certified import (
    DEPENDS,
    FLIPS,
    STAYS,
    TOLD,
    UNKNOWN,
    CertifiedCounterfactuals,
    certify_counterfactuals,
)
from verifair.systems.files import file_name

MEANING = {
    FLIPS: "would be decided otherwise", STAYS: "would be decided as they are", DEPENDS: "depend on the coefficients",
    UNKNOWN: "are unknown",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Proofs:
    """One intervention.   found: what was certified.   rows: what the table calls its rows.   file: of the certificate, if one was
    asked for and there is one.   lines: for the screen.
    """

    found: CertifiedCounterfactuals
    rows: pd.Index
    file: Path | None
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return told(self.found.effects.do)

    def trust(self) -> list[str]:
        """What is proved."""
        counts = self.found.counts
        if not counts[FLIPS] + counts[STAYS]:
            return []
        each = f"the decision on the counterfactual of {counts[FLIPS] + counts[STAYS]:,} complainants under do({self.name})"
        return [f"{each}, for every coefficient in its interval ({self.found.box}), the equations and intervals taken as given"]

    def table(self) -> pd.DataFrame:
        """A line for each complainant."""
        table = self.found.table()
        table["row"] = self.rows
        table.insert(0, "do", self.name)
        return table

    def line_of(self, place: int) -> str | None:
        """What is said in a case file. place: position in the table."""
        at = np.flatnonzero(self.found.rows == place)
        if not len(at):
            return None
        status, box = str(self.found.status[at[0]]), self.found.box
        if status in (FLIPS, STAYS):
            said = "otherwise than the person" if status == FLIPS else "as the person is"
            return f"Proved: the counterfactual is decided {said}, whatever the coefficients are in their intervals ({box})."
        if status == DEPENDS:
            return f"The decision on the counterfactual depends on the coefficients within their intervals ({box}): both are met."
        why = TOLD[str(self.found.reason[at[0]])]
        return f"Whether the decision on the counterfactual is the same for all coefficients is unknown: {why}."

    def to_dict(self) -> dict[str, Any]:
        return {**self.found.to_dict(), "certificate_file": str(self.file) if self.file else None, "people": self._people()}

    def _people(self) -> list[dict[str, Any]]:
        return [{str(key): value for key, value in line.items()} for line in self.table().drop(columns="do").to_dict("records")]


def check_certify(level: float | None, certificate: Path | None, given: Given) -> None:
    """Before the run, so that nothing is lost after it. Raises QueryError."""
    if level is None:
        if certificate is not None:
            raise QueryError("--certificate holds proofs about counterfactual decisions: add --certify 95, or drop it")
        return
    if given.network is None:
        raise QueryError("--certify proves what a network decides, and here decides none: pass MODEL and --schema, or drop it")


def certify(
    given: Given, model: SituationTesting, interventions: Sequence[Mapping[str, Any]], level: float, budget: Budget,
    certificate: Path | None,
) -> tuple[Proofs, ...]:  # fmt: skip
    """Certify the complainants of each intervention, in equal shares of the time that is left, and save what is proved.

    Raises QueryError, DataError, SchemaError as `certify_counterfactuals` does, as where a mechanism is not linear.
    """
    decider = given.network
    assert decider is not None, "checked before the run"
    out = []
    share = Budget(seconds=budget.seconds / max(len(interventions), 1), nodes=budget.nodes, seed=budget.seed)
    for do in interventions:
        with options.progress_bar(f"certified, do({told(do)})") as progress:
            found = certify_counterfactuals(
                model.causal_model_, decider.network, decider.schema, model.frame_, do=do, level=level, budget=share,
                progress=progress,
            )  # fmt: skip
        wanted = certificate if certificate is None or len(interventions) == 1 else _beside(certificate, told(do))
        output = options.Output(source=given.source, json=None, certificate=wanted)
        file = output.save_certificate(found.certificate)
        lines = [*_lines(found, told(do)), *_saved(output, file)]
        out.append(Proofs(found=found, rows=model.frame_.index[found.rows], file=file, lines=tuple(lines)))
    return tuple(out)


def _lines(found: CertifiedCounterfactuals, name: str) -> list[str]:
    counts = {status: count for status, count in found.counts.items() if count}
    parts = ", ".join(f"{count:,} {MEANING[status]}" for status, count in counts.items())
    lines = [
        f"Certified under do({name}), for every coefficient in its interval: of {len(found.rows):,} complainants {parts} "
        f"({found.seconds:.1f} s)."
    ]
    lines.append(f"Taken as given are the equations and intervals: {found.box}.")
    if found.reasons:
        why = ", ".join(f"{count:,} ({TOLD[reason]})" for reason, count in found.reasons.items())
        lines.append(f"Unknown: {why}.")
    return lines


def _saved(output: options.Output, file: Path | None) -> list[str]:
    last = f"certificate: {output.check_line(file)}" if file else output.unsaved_line("nothing was proved")
    return [last] if last else []


def _beside(certificate: Path, name: str) -> Path:
    """A file of its own for each intervention: proof.json.gz becomes proof-sex-Male.json.gz."""
    stem, dot, suffix = certificate.name.partition(".")
    return certificate.with_name(f"{stem}-{file_name(name)}{dot}{suffix}")
