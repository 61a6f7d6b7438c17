"""How wrong the causal model has to be before claims flip: on the screen, on paper, and in a case file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table as Grid

from verifair.systems.cst.deciders import Rule, counterfactually
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import Intervention
from verifair.systems.cst.groups import told
from verifair.systems.cst.plots import METHODS
from verifair.systems.cst.robustness.sensitivity import LEVELS, Sensitivity, sensitivity
from verifair.systems.cst.robustness.what_if import Verdict
from verifair.systems.cst.testing import Method
from verifair.systems.figures import figure

FARTHEST = 5.0
"""Standard errors up to which flips are sought, and drawn."""
OF = {"positive": "cases", "significant": "significant"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Robustness:
    """One intervention.   found: of its claims by several methods.   rows: (N,) what the table calls its rows."""

    found: tuple[Sensitivity, ...]
    rows: pd.Index

    @classmethod
    def of(
        cls, model: SituationTesting, one: Intervention, progress: Callable[[int, int], None] | None = None
    ) -> Robustness:  # fmt: skip
        """Of the cases by CST (or without search centers, where nobody decides on counterfactuals), of the significant ones where
        each stands on its own, and of CF where a rule decides: there the answer is exact, and of networks `--certify` knows more.

        Raises QueryError as `sensitivity` does, such as for mechanisms that are not linear.
        """
        asked: list[tuple[Method, Verdict]] = [(one.method, "positive")]
        asked += [] if one.found.terms.correction else [(one.method, "significant")]
        asked += [("CF", "positive")] if isinstance(counterfactually(model.decider), Rule) else []
        found = [
            sensitivity(
                model, one.found.do, method=method, verdict=verdict, found=one.found, most=FARTHEST, progress=progress
            )
            for method, verdict in asked
        ]  # fmt: skip
        return cls(found=tuple(found), rows=one.frame.index)

    @property
    def name(self) -> str:
        return told(self.found[0].do)

    def grid(self) -> Grid:
        """The share of claims that hold, for each of LEVELS, and of those that are overturned."""
        title = f"How wrong must the causal model be? do({self.name}), k = {self.found[0].k}"
        grid = Grid(title=f"{title}\nclaims that hold while each coefficient is off by at most", title_justify="left")
        grid.add_column("claims")
        grid.add_column("number", justify="right")
        for t in LEVELS:
            grid.add_column(f"{t:g} SE", justify="right")
        grid.add_column(f"lost, {LEVELS[-1]:g} SE", justify="right")
        for one in self.found:
            claims = int(one.claims.sum())
            cells = [_percent(one.robust(t)[0]) for t in LEVELS] + [_percent(one.robust(LEVELS[-1])[1])]
            grid.add_row(_called(one), f"{claims:,}", *cells)
        return grid

    def lines(self) -> Iterator[str]:
        """What the shares mean."""
        yield (
            "SE: standard errors of the coefficients. A claim holds where none within so many overturn it, and is lost where "
            "some were found that do; the rest is not known. Graph and form of the equations are taken as they are."
        )
        table = self.found[0].coefficients()
        parts = (f"{line['coefficient']} {line['overturns']:,}" for line in table.to_dict(orient="records"))
        yield f"Overturned within {LEVELS[-1]:g} SE by one coefficient alone ({_called(self.found[0])}): {', '.join(parts)}."

    def table(self) -> pd.DataFrame:
        """A line for each claim: do, method, claim, k, row, safe and flip (standard errors), coefficient, alone."""
        parts = []
        for one in self.found:
            table = one.table()
            table["row"] = self.rows[table["row"].to_numpy(dtype=np.int64)]
            table["claim"] = OF[one.verdict]
            table.insert(0, "method", one.test)
            table.insert(1, "k", one.k)
            parts.append(table)
        whole = pd.concat(parts, ignore_index=True)
        whole.insert(0, "do", self.name)
        return whole

    def line_of(self, place: int) -> str | None:
        """What is said in a case file. place: position in the table."""
        said = []
        for one in self.found:
            at = np.flatnonzero((one.complainants == place) & one.claims)
            if not len(at):
                continue
            n = int(at[0])
            name = "CF" if one.test == "CF" else f"its significance by {one.test}" if one.verdict == "significant" else "the case"
            flip = f"some {one.flip[n]:.3g} away overturn it" if np.isfinite(one.flip[n]) else "none were found that overturn it"
            alone = f" ({one.coefficient[n]} alone: {one.alone[n].min():.3g})" if one.coefficient[n] else ""
            said.append(f"{name} holds for all coefficients within {one.safe[n]:.3g} standard errors, {flip}{alone}")
        return f"How wrong must the causal model be (k = {self.found[0].k})? {'; '.join(said)}." if said else None

    def draw(self, path: Path) -> None:
        """Shares of claims overturned, over standard errors: at least those found, at most those that are not known to hold."""
        with figure(path, (7.5, 4.2)) as drawn:
            axis = drawn.axes[0]
            t = np.linspace(0, FARTHEST, 251)
            for one in self.found:
                safe, flip = np.sort(one.safe[one.claims]), np.sort(one.flip[one.claims])
                if not len(safe):
                    continue
                most = 100 * np.searchsorted(safe, t, side="left") / len(safe)
                least = 100 * np.searchsorted(flip, t, side="right") / len(flip)
                color, style = METHODS[one.test], "--" if one.verdict == "significant" else "-"
                axis.plot(t, least, color=color, ls=style, lw=1.8, label=f"{_called(one)} ({len(safe):,})")
                axis.fill_between(t, least, most, color=color, alpha=0.13 if style == "-" else 0.07, lw=0)
            for level in LEVELS:
                axis.axvline(level, color="#AAAAAA", lw=0.8, ls=":")
            axis.set_xlim(0, FARTHEST)
            axis.set_ylim(0, 100)
            axis.set_xlabel("coefficients may be off by so many standard errors each (dotted: 1, 1.645, 1.96)")
            axis.set_ylabel("% of the claims overturned")
            axis.set_title("Lines: overturned by coefficients that were found; shade: not known to hold", fontsize=10)
            axis.grid(alpha=0.3)
            drawn.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; rows by their names."""
        out = []
        for one in self.found:
            told_ = one.to_dict()
            for line in told_["people"]:
                line["row"] = self.rows[int(line["row"])]
            out.append(told_)
        return {"claims": out}


def _called(one: Sensitivity) -> str:
    return one.test if one.test == "CF" else f"{one.test}, {OF[one.verdict]}"


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f}%"
