"""The answer of `verifair fgce`: on the screen, in a folder, as a picture and as JSON. Proved, claimed and measured kept apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from encoders.network import Network
from verifair.checker.certificate import Certificate
from verifair.cli.fgce_inputs import Rows
from verifair.systems.fgce import plots as group_plots
from verifair.systems.fgce import tables as group_tables
from verifair.systems.fgce.burden import Burden
from verifair.systems.fgce.decider import beside
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import GroupSummary, advice_table, explanations, subgroup_table, summaries
from verifair.systems.fgce.robust_report import Standing
from verifair.systems.fgce.tables import Comparison

ENDED = {"interrupted": "Ctrl-C", "time": "the time was up"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """model: fitted.   found: its groups.   burden: the measures, if asked for.   standing: what the network says of the
    counterfactuals, None after Ctrl-C.   compared: groups beside each other.
    """

    model: GroupCounterfactuals
    found: list[GroupSummary]
    burden: Burden | None
    standing: Standing | None
    compared: list[Comparison]
    rows: Rows
    seconds: float
    seed: int

    @classmethod
    def of(
        cls, model: GroupCounterfactuals, burden: Burden | None, standing: Standing | None, rows: Rows, *, seconds: float, seed: int
    ) -> Answer:
        found = summaries(model, rows.frame.index, seed=seed)
        compared = group_tables.comparisons(model, found, burden, seed=seed)
        return cls(
            model=model, found=found, burden=burden, standing=standing, compared=compared, rows=rows, seconds=seconds, seed=seed
        )

    @property
    def certificate(self) -> Certificate | None:
        """Of what is proved robust."""
        return None if self.standing is None or self.standing.certified is None else self.standing.certified.certificate

    def show(self, console: Console) -> None:
        """Short: the overview, each group's counterfactuals and subgroups, and with measures how groups compare by them."""
        model = self.model
        console.print(self._about())
        console.print(group_tables.overview(self.found, k=model.k, cost=model.cost, factuals=model.factuals))
        for name, why in model.skipped_.items():
            console.print(f"left out: {name}: {why}")
        for one in self.found:
            if one.advice:
                console.print(group_tables.advice_grid(one, model.schema))
            else:
                console.print(f"{one.name}: nothing so near covers anybody; the cheapest counterfactual costs {one.cheapest:.4g}")
            for line in group_tables.subgroup_lines(one) if len(one.subgroups) > 1 else []:
                console.print(line, soft_wrap=True)
        if self.standing is not None and any(one.advice for one in self.found):
            self._show_standing(self.standing, console)
        if self.burden is not None:
            self._show_burden(self.burden, console)
        if self.compared:
            console.print(group_tables.comparison_grid(self.compared))
        console.print(self._closing(), soft_wrap=True)

    def _about(self) -> str:
        graph, reach = self.model.graph_, self.model.reachability_
        how = "the least that leaves no row alone" if self.model.eps is None else "as given"
        return (
            f"Graph: {len(graph):,} rows, {graph.edges:,} moves of length at most {graph.eps:.4g} ({how}), "
            f"{reach.weak_count:,} weak and {reach.strong_count:,} strong components. Explained: {self.rows.audited}."
            + (f" {self.rows.dropped:,} rows outside the schema were left out." if self.rows.dropped else "")
        )

    def _show_standing(self, standing: Standing, console: Console) -> None:
        if standing.certified is not None:
            console.print(standing.grid())
        for line in standing.lines():
            console.print(line, soft_wrap=True)

    def _show_burden(self, burden: Burden, console: Console) -> None:
        if burden.reaches:
            console.print(group_tables.reach_grid(burden, self.found))
        of = "best" if burden.exact else "greedy's"
        for title, table, by in (
            (f"kAUC: {of} coverage over costs, for each k", burden.kauc, "k"),
            (f"dAUC: {of} coverage over k, for each cost d", burden.dauc, "d"),
            ("cAUC: least cost over k, for each coverage c", burden.cauc, "c"),
        ):
            if len(table):
                console.print(group_tables.curve_grid(title, table, by, self.found))
        if burden.open:
            console.print(f"{burden.open} points of the curves are not proved optimal in this time: scores are of the best known.")
        if burden.stopped:
            console.print(f"The measures were not finished ({ENDED[burden.stopped]}): what was done by then is shown.")

    def _closing(self) -> str:
        words = "Costs and intervals are measured on these rows (percentile bootstrap over people, 95%); "
        kinds = {one.certainty.trust for one in self.found}
        if self.model.method == "greedy":
            return words + f"the choice is greedy's. {self.seconds:.1f} s."
        if kinds == {"claimed"}:
            return words + f"that no choice is better is the solver's claim. {self.seconds:.1f} s."
        return words + f"proved optima are about these rows, this graph and these costs. {self.seconds:.1f} s."

    def write(self, out: Path) -> None:
        """Everything into a folder."""
        out.mkdir(parents=True, exist_ok=True)
        with (out / "fgce.txt").open("w", encoding="utf-8") as file:
            self.show(Console(file=file, width=160, markup=False))
        for name, table in self._tables().items():
            if len(table):
                table.to_csv(out / f"{name}.csv", index=False)
        for name, draw in group_plots.figures(self.found, self._shares(), self.burden, self.model.cost).items():
            draw(out / name)

    def draw(self, path: Path) -> None:
        """One picture of the groups side by side."""
        path.parent.mkdir(parents=True, exist_ok=True)
        group_plots.overview(self.found, self._shares(), self.burden, path, self.model.cost)

    def _shares(self) -> pd.DataFrame:
        return self.model.attribute_changes()

    def _tables(self) -> dict[str, pd.DataFrame]:
        groups, shares = pd.DataFrame([_flat(one) for one in self.found]), self._shares()
        out = {
            "groups": groups,
            "counterfactuals": advice_table(self.found),
            "explanations": explanations(self.model, self.rows.frame.index),
            "subgroups": subgroup_table(self.found),
            "attribute-changes": shares.rename(columns=beside(("group",), list(shares.columns))).rename_axis("group").reset_index(),
        }
        if self.standing is not None:
            out |= self.standing.tables()
        if self.burden is not None:
            out |= {"coverage": self.burden.coverages, "cost": self.burden.costs}
            out |= {"kauc": self.burden.kauc, "dauc": self.burden.dauc, "cauc": self.burden.cauc}
        return out

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        model = self.model
        network = model.model
        assert isinstance(network, Network)
        return {
            "query": {
                "kind": "fgce", "protected": list(self.rows.groups.columns), "k": model.k, "coverage": model.coverage,
                "max_cost": model.max_cost, "cost": model.cost, "weighting": model.weighting, "bandwidth": model.bandwidth,
                "eps": model.eps, "factuals": model.factuals, "changes": dict(model.changes or {}), "method": model.method,
                "solver": model.solver if model.method == "mip" else None, "audit": self.rows.audited,
                "only_robust": model.only_robust,
            },
            "graph": self._graph(),
            "groups": [one.to_dict() for one in self.found],
            "left_out": model.skipped_,
            "explanations": _records(explanations(model, self.rows.frame.index)),
            "attribute_changes": self._shares().to_dict(orient="index"),
            "comparison": [asdict(one) | {"clear": one.clear} for one in self.compared],
            "measures": None if self.burden is None else _measures(self.burden),
            **(self.standing.to_dict() if self.standing is not None else {"re_evaluated": None, "robust": None}),
            "trust": self._trust(),
            "model_sha256": network.source_sha256,
            "schema_sha256": model.schema.sha256,
            "seconds": self.seconds,
            "seed": self.seed,
        }  # fmt: skip

    def _graph(self) -> dict[str, Any]:
        graph, reach = self.model.graph_, self.model.reachability_
        return {
            "nodes": len(graph), "edges": graph.edges, "eps": graph.eps, "weak_components": reach.weak_count,
            "strong_components": reach.strong_count, "density": graph.edges / max(len(graph) * (len(graph) - 1), 1),
            "moves": {f.name: change for f, change in zip(self.model.schema.features, self.model.space_.changes, strict=True)},
            "rows_left_out": self.rows.dropped,
        }  # fmt: skip

    def _trust(self) -> dict[str, list[str]]:
        """Which of the numbers are proved, which a solver claims, and which are measured."""
        proved = [f"{one.name}: {one.certainty.text}" for one in self.found if one.certainty.trust == "proved"]
        proved += self.standing.trust() if self.standing is not None else []
        claimed = [f"{one.name}: {one.certainty.text}" for one in self.found if one.certainty.trust == "claimed"]
        measured = ["costs, coverages and attribute changes, on the rows of the table", "intervals, by percentile bootstrap"]
        return {"proved": proved, "claimed": claimed, "measured": measured}


def _measures(burden: Burden) -> dict[str, Any]:
    return {
        "reach": {name: None if one is None else asdict(one) for name, one in burden.reaches.items()},
        "subgroups": {
            name: {str(number): None if one is None else asdict(one) for number, one in parts.items()}
            for name, parts in burden.subgroups.items()
        },
        "levels": burden.levels.tolist(),
        "exact": burden.exact,
        "stopped": burden.stopped,
        "points_not_proved_optimal": burden.open,
        **{name: _records(table) for name, table in (
            ("coverage", burden.coverages), ("cost", burden.costs), ("kauc", burden.kauc), ("dauc", burden.dauc),
            ("cauc", burden.cauc),
        )},
    }  # fmt: skip


def _flat(one: GroupSummary) -> dict[str, Any]:
    """A group in one line of CSV."""
    return {
        "group": one.name, "to explain": one.negatives, "hopeless": one.hopeless, "factuals": one.factuals, "covered": one.covered,
        "subgroups": len(one.subgroups), "used": one.used, "cost": one.cost, "bound": one.certainty.bound,
        "optimised": one.certainty.of, "optimal": one.certainty.optimal, "trust": one.certainty.trust,
        "mean cost": one.mean.mean if one.mean else None, "mean cost low": one.mean.low if one.mean else None,
        "mean cost high": one.mean.high if one.mean else None,
    }  # fmt: skip


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in line.items()} for line in table.to_dict(orient="records")]
