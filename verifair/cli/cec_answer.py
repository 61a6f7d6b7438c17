"""The answer of `verifair cec`: on the screen, in a folder, and as JSON. What is measured and what is certified are kept apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from encoders.network import Network
from solvers.outcome import Budget
from verifair.cli import options
from verifair.cli.cec_certify import certify_people
from verifair.cli.cec_inputs import Audited
from verifair.schema.schema import Schema
from verifair.systems.cec import plots as consistency_plots
from verifair.systems.cec import tables as consistency_tables
from verifair.systems.cec.audit import Audit
from verifair.systems.cec.findings import Consistency


@dataclass(frozen=True, kw_only=True, eq=False)
class Proved:
    """Whose regime A is proved.   answer: JSON-ready, None where Ctrl-C came before the end.   text: the same for the screen."""

    answer: dict[str, Any] | None
    text: str

    @classmethod
    def of(
        cls, network: Network, schema: Schema, audit: Audit, asked: Audited, delta: float, budget: Budget, files: options.Output
    ) -> Proved:
        """Certify within `delta` units, and write the certificate. Raises QueryError, SchemaError and DataError as `certified`."""
        told = StringIO()
        console = Console(file=told, highlight=False, markup=False)
        try:
            answer = certify_people(
                network, schema, audit, asked.reference, asked.people, delta, budget=budget, out=files, console=console
            )
        except KeyboardInterrupt:
            return cls(answer=None, text="Nothing was certified: interrupted.")
        for line in answer["people"]:  # by their names in the tables
            line["row"], line["counterpart"] = asked.rows[line["row"]], asked.reference_rows[line["counterpart"]]
        return cls(answer=answer, text=told.getvalue().rstrip())

    @property
    def interrupted(self) -> bool:
        return self.answer is None

    def trust(self) -> list[str]:
        if self.answer is None or not self.answer["certified"]:
            return []
        delta = self.answer["delta"]
        return [f"regime A of {self.answer['certified']:,} pairs within {delta:g} unit{'' if delta == 1 else 's'}"]

    def table(self) -> pd.DataFrame:
        """One line for each pair in regime A: row, counterpart, status, reason, score, bound."""
        return pd.DataFrame([] if self.answer is None else self.answer["people"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """found: what was measured.   asked: of whom.   ties, top: as asked for.   proved: whose regime A is, if that was asked."""

    network: Network
    schema: Schema
    found: Consistency
    asked: Audited
    ties: str
    top: int
    proved: Proved | None
    seconds: float
    seed: int

    def show(self, console: Console) -> None:
        """Groups, threshold, features, people to review; then what the figures depend on."""
        found = self.found
        console.print(self._about(), soft_wrap=True)
        console.print(consistency_tables.overview(found, self.asked.protected))
        console.print(consistency_tables.legend(), soft_wrap=True)
        if len(found.groups) > consistency_tables.WIDE + 1:
            console.print(consistency_tables.between_grid(found, self.asked.protected))
        console.print(consistency_tables.features_grid(found))
        if self.top:
            console.print(consistency_tables.review_grid(found, self.top, self.asked.apart.name if self.asked.apart else None))
        for line in self._lines():
            console.print(line, soft_wrap=True)
        if self.proved is not None:
            console.print(self.proved.text, soft_wrap=True)

    def _about(self) -> str:
        asked = self.asked
        whom = f"the {len(asked.reference.people):,} rows of {asked.apart}" if asked.apart else "the audited table"
        names = ", ".join(asked.merit)
        dropped = f" Left out, as outside the schema: {asked.dropped:,}." if asked.dropped else ""
        return (
            f"Audited: {asked.words} ({len(asked.people):,}). Counterparts: the nearest with the same true label in {whom}, by "
            f"merit ({names}). Reasons: integrated gradients, {self.found.audit.method}.{dropped}"
        )

    def _lines(self) -> list[str]:
        found = self.found
        lines = [
            *self.asked.notes,
            consistency_tables.threshold_line(found),
            consistency_tables.everybody_line(found),
            consistency_tables.within_line(found),
            consistency_tables.ties_line(found, self.ties),
            consistency_tables.distance_line(found),
            *consistency_tables.unmatched_lines(found),
            consistency_tables.model_line(found),
            f"Measured on these rows, not proved; nothing is said of other people. 95 % by bootstrap. {self.seconds:.1f} s.",
        ]
        return [line for line in lines if line]

    def write(self, out: Path) -> None:
        """Everything into a folder."""
        out.mkdir(parents=True, exist_ok=True)
        with (out / "cec.txt").open("w", encoding="utf-8") as file:
            self.show(Console(file=file, width=160, markup=False))
        found = self.found
        tables = {
            "groups": found.group_table(), "between-groups": found.between, "features": found.features, "review": found.review,
            "thresholds": found.thresholds, "pairs": found.pairs(), "unmatched": found.unmatched(),
            "attributions": found.attributions(),
        }  # fmt: skip
        for name, table in tables.items():
            table.to_csv(out / f"{name}.csv", index=False)
        proofs = out / "certified.csv"
        proofs.unlink(missing_ok=True)  # an earlier run's are not about this one
        if self.proved is not None:
            self.proved.table().to_csv(proofs, index=False)
        for name, draw in _figures(found).items():
            draw(out / name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        asked, audit = self.asked, self.found.audit
        return {
            "query": {
                "kind": "cec", "protected": list(asked.protected), "merit": list(asked.merit), "audit": asked.words,
                "reference": str(asked.apart) if asked.apart else None, "tau": audit.matches.tau, "threshold": audit.threshold,
                "attributions": audit.method, "ties": self.ties,
            },
            **self.found.to_dict(),
            "certified": self.proved.answer if self.proved is not None else None,
            "trust": {
                "proved": self.proved.trust() if self.proved is not None else [],
                "measured": ["scores, decisions and regimes, on the rows of the table", "intervals, by percentile bootstrap"],
            },
            "model_sha256": self.network.source_sha256,
            "schema_sha256": self.schema.sha256,
            "seconds": self.seconds,
            "seed": self.seed,
        }  # fmt: skip


def _figures(found: Consistency) -> dict[str, Callable[[Path], None]]:
    """File name -> what draws it."""
    audit, pairs, table = found.audit, found.pairs(), found.group_table()
    groups = consistency_plots.groups_drawn(table)
    return {
        "scores.png": lambda path: consistency_plots.scores(pairs, groups, audit.threshold, path),
        "thresholds.png": lambda path: consistency_plots.regimes_by_threshold(found.thresholds, audit.threshold, path),
        "features.png": lambda path: consistency_plots.contributions(found.features, path),
        "distances.png": lambda path: consistency_plots.distances(pairs, groups, audit.matches.tau, path),
        "pfr-cec.png": lambda path: consistency_plots.plane(table, groups, audit.threshold, path),
    }
