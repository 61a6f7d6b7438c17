"""Our exported queries answered by Marabou: it reads the files (product network and VNN-LIB 1.0) with its own parsers, in a
separate process, and we answer the same file, its VNN-LIB 2.0 sibling, and the fairness question behind it.

A line for each file. `agree`: both say sat, or both unsat. Where they contradict each other the points are decided exactly: Marabou
works in floats with tolerances, so its sat may miss the query by a little (by how much is shown), and its unsat may overlook a
point on the edge. The question behind a relaxed file may be proved although the file is sat (a point that is no row), never the
other way round; and 1.0 may be sat where 2.0 is not, never the other way round: those raise Disagreement.

    python -m benchmarks.run interop_marabou --people 4 --seconds 10        a shorter run
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.interop import marabou_files
from benchmarks.interop.questions import ExportedQuery, questions
from benchmarks.shared import Skipped, show
from encoders.vnnlib.reader import Variable, VnnlibQuery, read_vnnlib
from solvers.outcome import Budget
from verifair.engine.cascade import solve
from verifair.engine.verdict import Status
from verifair.errors import Disagreement
from verifair.interop.decide import VnnlibStatus, decide, networks_of
from verifair.interop.export import NETWORK, PRODUCT, Piece, Pieces, export, pieces_of

DECIDED = ("sat", "unsat")


def run(folder: Path, *, people: int = 10, seconds: int = 10) -> pd.DataFrame:
    if not marabou_files.installed():
        raise Skipped("pip install 'verifair[peers]' brings Marabou")
    with TemporaryDirectory() as scratch:
        lines = [
            line
            for question in questions(folder / "interop-nets", people)
            for line in compared(question, Path(scratch) / question.name.replace(" ", "-"), seconds)
        ]
    table = show("Interop: exported queries, ours beside Marabou", pd.DataFrame(lines), folder)
    pairs = table[table["marabou"].isin(DECIDED) & table["ours 1.0"].isin(DECIDED)]
    agree = pairs[pairs["marabou"] == pairs["ours 1.0"]]
    sat = (agree["marabou"] == "sat").sum()
    undecided = {column: (~table[column].isin(DECIDED)).sum() for column in ("marabou", "ours 1.0", "ours 2.0")}
    print(f"{len(table)} queries: {len(agree)} agree ({sat} sat, {len(agree) - sat} unsat), {len(pairs) - len(agree)} contradict; "
          f"left open: Marabou {undecided['marabou']}, we {undecided['ours 1.0']} as 1.0 and {undecided['ours 2.0']} as 2.0")
    for _, line in table[table["edge"] != ""].iterrows():
        print(f"  {line['query']}: {line['edge']}")
    seconds_of = {column: table[f"{column} s"].sum() for column in ("marabou", "1.0", "2.0")}
    print(f"seconds: Marabou {seconds_of['marabou']:.1f}, ours {seconds_of['1.0']:.1f} (1.0) and {seconds_of['2.0']:.1f} (2.0)")
    return table


def compared(question: ExportedQuery, folder: Path, seconds: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each file of one question. Raises Disagreement if the file and the question cannot both be right."""
    exported = export(question.query, folder, relaxed=True)
    pieces = pieces_of(question.query, enumerated=[], relaxed=True)
    for name, piece in zip(exported.files, pieces.pieces, strict=True):
        query_1 = read_vnnlib(folder / "1.0" / "vnnlib" / name)
        query_2 = read_vnnlib(folder / "2.0" / "vnnlib" / name)
        answer_1 = decide(query_1, networks_of(query_1, {"": folder / "1.0" / PRODUCT}), budget=Budget(seconds=seconds))
        answer_2 = decide(query_2, networks_of(query_2, {"f": folder / "2.0" / NETWORK}), budget=Budget(seconds=seconds))
        theirs = marabou_files.ask(folder / "1.0" / PRODUCT, folder / "1.0" / "vnnlib" / name, seconds)
        status = behind(pieces, piece, seconds)
        if {answer_1.answer, answer_2.answer} == {VnnlibStatus.SAT, VnnlibStatus.UNSAT} and answer_1.answer is VnnlibStatus.UNSAT:
            raise Disagreement(f"{question.name} {name}: 1.0 is unsat, though it relaxes 2.0, which is sat")
        if status is Status.VIOLATED and VnnlibStatus.UNSAT in (answer_1.answer, answer_2.answer):
            raise Disagreement(f"{question.name} {name}: the question is violated, the file unsat")
        edge = ""
        if theirs.answer in DECIDED and answer_1.answer.value in DECIDED and theirs.answer != answer_1.answer.value:
            edge = at_the_edge(query_1, folder / "1.0" / PRODUCT, theirs, answer_1.assignment is not None)
        yield {
            "query": f"{question.name} {name.split('.')[0]}", "marabou": theirs.answer, "ours 1.0": answer_1.answer.value,
            "ours 2.0": answer_2.answer.value, "question": status.value, "marabou s": theirs.seconds, "1.0 s": answer_1.seconds,
            "2.0 s": answer_2.seconds, "edge": edge or theirs.detail,
        }


def behind(pieces: Pieces, piece: Piece, seconds: int) -> Status:
    """Return the engine's verdict about the box and direction of a file, with whole numbers."""
    batch = pieces.problem.batch.take([piece.question])
    batch = replace(batch, lower=piece.lower[None], upper=piece.upper[None])
    problem = replace(pieces.problem, batch=batch, goals=(pieces.problem.goals[piece.goal],))
    return solve(problem, budget=Budget(seconds=seconds))[0][0].status


def at_the_edge(query: VnnlibQuery, network: Path, answer: marabou_files.MarabouAnswer, ours_is_sat: bool) -> str:
    """Return, in words, the exact evaluation of a contradiction."""
    if answer.inputs is None:
        return "Marabou says unsat, our witness is exact" if ours_is_sat else "both say unsat"
    (product,) = networks_of(query, {"": network})
    x = np.array([Fraction(v) for v in answer.inputs], dtype=object)
    y = product.forward(x[None, :])[0]
    values = {Variable(0, "input", i): v for i, v in enumerate(x)} | {Variable(0, "output", i): v for i, v in enumerate(y)}
    violation = Fraction(0)
    for formula in query.asserted:
        for part in formula.parts or (formula,):
            assert part.atom is not None  # exports are conjunctions of comparisons
            violation = max(violation, sum((c * values[v] for v, c in part.atom.terms), part.atom.constant))
    if violation > 0:
        return f"Marabou says sat, its point misses the query by {float(violation):.3g}"
    return "Marabou's point meets the query exactly"
