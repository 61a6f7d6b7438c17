"""What the network itself says about the counterfactuals of `verifair fgce`: decided again, and proved robust or refuted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table as Grid

from verifair.checker.envelope import semantics
from verifair.engine.verdict import Status
from verifair.schema.schema import Schema
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import words
from verifair.systems.fgce.robust import Certified

ROWS = 40
"""Lines on the screen; files hold all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """decided: what `re_evaluated` says of every counterfactual.   certified: verdicts and certificate, None where nobody asked.

    before: (n,) the counterfactual's own values, for each line of `certified`.   Rows are called as in the table.
    semantics: what these verdicts are about.
    """

    schema: Schema
    decided: pd.DataFrame
    certified: Certified | None
    before: tuple[dict[str, Any], ...]
    semantics: str | None

    @classmethod
    def of(
        cls, model: GroupCounterfactuals, rows: pd.Index, delta: Sequence[float], *, seconds: float,
        progress: Callable[[int, int], None] | None = None,
    ) -> Standing:  # fmt: skip
        """Of a fitted model.   rows: (N,) what the table's rows are called.   delta: none, to decide again only."""
        decided = model.re_evaluated()
        found = model.certify(delta, seconds=seconds, progress=progress) if delta else None
        before = () if found is None else tuple(model.schema.decode(model.graph_.raw[node]) for node in found.table["row"])
        if found is not None:
            found = Certified(table=_called(found.table, rows), certificate=found.certificate)
        return cls(
            schema=model.schema, decided=_called(decided, rows), certified=found, before=before,
            semantics=None if found is None else semantics(model.model),
        )

    def grid(self) -> Grid:
        """A line for each counterfactual, a column for each delta, and what refutes it first."""
        assert self.certified is not None
        table = self.certified.table
        deltas = sorted(set(table["delta"]))
        title = f"Does it stay {self.schema.outcomes[1]} nearby? (delta in units, the whole neighbourhood)"
        grid = Grid(title=title, title_justify="left")
        for column in ("group", "row"):
            grid.add_column(column, justify="right")
        for delta in deltas:
            grid.add_column(f"delta {delta:g}")
        grid.add_column(f"decided {self.schema.outcomes[0]} already with")
        parts = list(table.groupby(["group", "row"], sort=False))
        for (group, row), part in parts[:ROWS]:
            cells = [_verdict(line) for line in part.itertuples()]
            grid.add_row(str(group), str(row), *cells, self._refuted_by(part))
        if len(parts) > ROWS:
            grid.add_row("", "", *[""] * len(deltas), f"{len(parts) - ROWS} more (--out or --json holds all)")
        return grid

    def _refuted_by(self, part: pd.DataFrame) -> str:
        """The values in which the first witness differs from the counterfactual."""
        for place, line in zip(part.index, part.itertuples(), strict=True):
            if line.witness is not None:
                moved = {name: value for name, value in line.witness.items() if value != self.before[place][name]}
                unseen = " (not in float32)" if line.float32_agrees is False else ""
                return (words(moved) or "its own values") + unseen
        return ""

    def lines(self) -> list[str]:
        """What the screen says below the tables."""
        out = [_decided(self.decided)]
        if self.certified is not None:
            out += [f"One unit of delta moves {self._moves()}; nothing else moves.", *self._counts(self.certified.table)]
            out.append(f"About the {self.semantics}.")
        return out

    def _moves(self) -> str:
        steps = zip(self.schema.features, self.schema.steps([]), strict=True)
        return ", ".join(f"{f.name} by {step:g}{f' {f.unit_name}' if f.unit_name else ''}" for f, step in steps if step)

    def _counts(self, table: pd.DataFrame) -> list[str]:
        out = []
        for delta, part in table.groupby("delta"):
            count = part["status"].value_counts()
            proved, refuted, unknown = (int(count.get(status.value, 0)) for status in Status)
            claimed = int((part["trust"] == "claimed").sum())
            out.append(
                f"delta {delta:g}: {proved} of {len(part)} proved to stay {self.schema.outcomes[1]}"
                + (f" ({claimed} by a solver's word)" if claimed else "")
                + (f", {refuted} refuted by an exact row" if refuted else "")
                + (f", {unknown} unknown" if unknown else "")
            )
        return out

    def tables(self) -> dict[str, pd.DataFrame]:
        """File name -> table; witnesses in words."""
        out = {"re-evaluated": self.decided}
        if self.certified is not None:
            table = self.certified.table
            out["robust"] = table.assign(witness=[None if one is None else words(one) for one in table["witness"]])
        return out

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        verdicts = None if self.certified is None else self.certified.table.to_dict(orient="records")
        return {"re_evaluated": self.decided.to_dict(orient="records"), "robust": verdicts}

    def trust(self) -> list[str]:
        """What is proved, one line a delta."""
        return [] if self.certified is None else self._counts(self.certified.table)


def _called(table: pd.DataFrame, rows: pd.Index) -> pd.DataFrame:
    return table.assign(row=rows[table["row"].to_numpy(dtype=int)])


def _verdict(line: Any) -> str:
    match Status(line.status):
        case Status.PROVED:
            return "proved" if line.trust == "checked" else "claimed"
        case Status.VIOLATED:
            return "refuted"
        case Status.UNKNOWN:
            return f"unknown ({line.reason})"


def _decided(table: pd.DataFrame) -> str:
    """How many counterfactuals the network decides positively, and where the runtime differs."""
    one, positive = table.drop_duplicates("row"), int(table.drop_duplicates("row")["positive"].sum())
    told = f"Decided again by the network: {positive} of {len(one)} counterfactuals are positive in exact arithmetic"
    differ = one.loc[one["agrees"].eq(False), "row"]
    if one["float32"].isna().all():
        return told + "; its file was not at hand to run in float32."
    if not len(differ):
        return told + ", and onnxruntime (float32) says the same of each."
    return told + f"; onnxruntime (float32) decides {len(differ)} otherwise: rows {', '.join(map(str, differ))}."
