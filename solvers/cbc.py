"""CBC through the binary that PuLP carries (PuLP: MIT, CBC: EPL 2.0). LP by Clp, MIP by branch and cut.

PuLP's own interface is not used: the program goes to CBC as an MPS file written from its arrays (CBC reads the numbers to within
two roundings), and comes back as CBC's binary solution (PuLP reads eight digits, and calls a time-limited point optimal). CBC's
reason for stopping follows only from two lines together: the first of its text solution and the `Result` line of its log. The files
lie in a temporary folder. CBC supports no stop of a budget: its cutoff changes the problem, and its log is buffered.

CBC rarely checks its clock: a run may take up to OVERTIME + PATIENCE seconds more than its budget; then it is ended and has no
point. Ctrl-C is passed on to CBC, which writes its best point, and the result is an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Reason, Termination, Unavailable, reasons, run_interruptible
from solvers.program import Array, Program

NAME, DISTRIBUTION, TOLERANCE = "cbc", "pulp", 1e-6
OVERTIME, PATIENCE = 1.0, 5.0  # seconds CBC gets to stop by itself when its time is up, and again when it is asked to

# The first line of the text solution, and where it says "Stopped" the log's Result, which is more exact.
_REASONS = reasons({
    Termination.OPTIMAL: ["Optimal"],
    Termination.INFEASIBLE: ["Infeasible", "Integer infeasible"],
    Termination.UNBOUNDED: ["Unbounded"],
    Termination.NUMERICAL: ["Stopped on difficulties", "Status unknown"],
    Limit.TIME: ["Stopped on time"],
    Limit.ITERATIONS: ["Stopped on iterations"],
    Limit.INTERRUPTED: ["Stopped on ctrl-c"],
    Limit.OTHER: ["Optimal (within gap tolerance)"],
})
_STOPPED: dict[str, Limit] = {
    "Stopped on time limit": Limit.TIME,
    "Stopped on node limit": Limit.NODES,
    "Stopped on solution limit": Limit.OTHER,
    "User ctrl-cuser ctrl-c": Limit.INTERRUPTED,
}
_NO_POINT = " (no integer solution - continuous used)"


@dataclass(frozen=True, kw_only=True)
class _Solution:
    """CBC's output.   status: first line of the text solution, "" without one.   point, duals: (n,), (kept rows,)."""

    status: str
    log: str
    point: Array | None
    duals: Array | None

    def number(self, pattern: str) -> float | None:
        """Return the last number in the log that follows `pattern`."""
        matches = re.findall(pattern + r"\s+([-+]?\d[\d.]*(?:e[-+]?\d+)?)", self.log)
        return float(matches[-1]) if matches else None


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Write the program, run CBC, read back. Row duals for LPs; CBC gives no Farkas ray."""
    binary = _binary()
    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    with tempfile.TemporaryDirectory(prefix="verifair-cbc-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        bounded = np.isfinite(program.row_lower) | np.isfinite(program.row_upper)  # MPS has no rows without a bound
        order = np.argsort(program.integer, kind="stable")
        _write(folder / "program.mps", program, bounded, order)
        seconds = max(run.begin(budget), 1e-2)
        interrupted = _run(binary, folder, _options(program, budget, presolve, seconds), seconds)
        out_of_time = run.end() >= seconds
        left = _read(folder, program.columns, int(bounded.sum()))
    reason = _reason(left, program, interrupted, out_of_time)
    stopped_early = program.mixed_integer and isinstance(reason, Limit)
    # The point of an LP that stopped early may be infeasible, and a MIP's may be its relaxation's.
    stopped_at_one = stopped_early and left.status.startswith(("Stopped", "Optimal")) and not left.status.endswith(_NO_POINT)
    values = duals = dual_bound = None
    if left.point is not None and (reason is Termination.OPTIMAL or stopped_at_one):
        values = np.empty(program.columns)
        values[order] = left.point
    if reason is Termination.OPTIMAL and left.duals is not None and not program.mixed_integer:
        duals = np.zeros(len(bounded))
        duals[bounded] = left.duals
    if reason is Termination.OPTIMAL and values is not None and program.objective is not None:
        dual_bound = float(program.objective @ values) + program.constant
    if stopped_early:
        dual_bound = _bound(left, program.constant)
    nodes = left.number("Enumerated nodes:") if program.mixed_integer else None
    node_count = None if nodes is None else int(nodes)
    return run.outcome(reason, _message(left), values=values, dual_bound=dual_bound, multipliers=duals, nodes=node_count)


def _binary() -> str:
    import pulp

    path = getattr(getattr(pulp, "PULP_CBC_CMD", None), "pulp_cbc_path", None)
    if path is None or not Path(path).is_file():
        raise Unavailable(f'{NAME}: PuLP {pulp.__version__} carries no CBC for this platform; pip install "pulp<4", or use highs')
    return str(path)


def _options(program: Program, budget: Budget, presolve: bool | None, seconds: float) -> list[str]:
    # With probing, in cuts and in preprocessing, CBC 2.10.3 called points optimal that were not (test_encoders_agree,
    # test_three_class_trees).
    options = ["-timeMode", "elapsed", "-seconds", f"{seconds:.3f}", "-ratioGap", "0", "-allowableGap", "0", "-probingCuts", "off",
               "-preprocess", "off"]
    if budget.seed:  # CBC treats seed 0 as "use the time of day"
        seed = str(budget.seed % (2**31 - 1) or 1)
        options += ["-randomSeed", seed, "-randomCbcSeed", seed]
    if budget.nodes is not None and program.mixed_integer:
        options += ["-maxNodes", str(budget.nodes)]
    if presolve is False:
        options += ["-presolve", "off"]
    return options


def _run(binary: str, folder: Path, options: list[str], seconds: float) -> bool:
    """Run CBC to its end, or not much longer than `seconds`; returns whether Ctrl-C arrived. Leaves no process behind."""
    command = [binary, "program.mps", *options, "-solve", "-solution", "solution.txt", "-saveSolution", "solution.bin"]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)  # so that Ctrl-C reaches it from here only

    def stop() -> None:
        process.send_signal(signal.SIGINT)
        last = threading.Timer(PATIENCE, process.kill)
        last.daemon = True
        last.start()

    def wait() -> None:
        try:
            process.wait(seconds + OVERTIME)
        except subprocess.TimeoutExpired:
            stop()
            process.wait()

    try:
        return run_interruptible(wait, stop)[1]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _reason(left: _Solution, program: Program, interrupted: bool, out_of_time: bool) -> Reason:
    """Return the reason: a run that was broken off is a limit, whatever CBC says, unless it had finished its optimum."""
    reason = _REASONS.get(left.status.removesuffix(_NO_POINT), Termination.ERROR)
    stopped = _STOPPED.get(_result(left))
    if reason is Termination.OPTIMAL and stopped is None:
        return reason
    if interrupted or out_of_time:
        return Limit.INTERRUPTED if interrupted else Limit.TIME
    if stopped is not None:
        return stopped
    if reason is Termination.UNBOUNDED and program.mixed_integer:
        return Termination.INFEASIBLE_OR_UNBOUNDED  # CBC reports no more about its relaxation
    return reason


def _bound(left: _Solution, constant: float) -> float | None:
    """Return the lower bound of a run that stopped early: about eight digits in the search's messages, 0.001 in the summary."""
    search, summary = left.number(r"best possible"), left.number("Lower bound:")
    if search is None or summary is None or abs(search) >= 1e49:
        return None
    return min(search - 1e-7 * max(1.0, abs(search)), summary + 1e-3) + constant


def _result(left: _Solution) -> str:
    matches = re.findall(r"^Result - (.*?)\s*$", left.log, re.MULTILINE)
    return str(matches[-1]) if matches else ""


def _message(left: _Solution) -> str:
    version = re.search(r"^Version: (\S+)", left.log, re.MULTILINE)
    texts = [left.status or left.log.strip().rpartition("\n")[2] or "ended without an answer", _result(left)]
    return f"CBC{' ' + version.group(1) if version else ''}: " + "; ".join(part for part in texts if part)


def _read(folder: Path, columns: int, rows: int) -> _Solution:
    """Return the text solution's first line, the log, and the binary solution: two int32 sizes, the objective, row activities and
    duals, column values and reduced costs, all float64."""
    log = (folder / "log.txt").read_text(errors="replace")
    text, binary = folder / "solution.txt", folder / "solution.bin"
    status = ""
    if text.is_file():
        with text.open(errors="replace") as lines:
            status = lines.readline().partition(" - objective value")[0].strip()
    point = duals = None
    if binary.is_file() and binary.stat().st_size == 8 * (2 + 2 * rows + 2 * columns):
        numbers = np.fromfile(binary, dtype=np.float64)[2:]
        duals, point = numbers[rows : 2 * rows], numbers[2 * rows : 2 * rows + columns]
    return _Solution(status=status, log=log, point=point, duals=duals)


def _write(path: Path, program: Program, bounded: np.ndarray, order: np.ndarray) -> None:
    """The program in free MPS: row R0 is the objective, columns C0, C1, ... are in the given order, whole ones last."""
    first = sp.csr_array((program.costs, np.arange(program.columns), [0, program.columns]), shape=(1, program.columns))
    entries = sp.vstack([first, program.rows[bounded]], format="csc")[:, order]  # the objective's zeros make every column appear
    row_lower, row_upper = program.row_lower[bounded], program.row_upper[bounded]
    kinds = np.where(row_lower == row_upper, "E", np.where(row_lower == -np.inf, "L", "G"))
    sides = np.where(row_lower == -np.inf, row_upper, row_lower)
    ranged = np.flatnonzero((row_lower < row_upper) & np.isfinite(row_lower) & np.isfinite(row_upper))
    split = int(entries.indptr[program.columns - int(program.integer.sum())])
    column = np.repeat(np.arange(program.columns), np.diff(entries.indptr))
    coefficients = partial(_lines, " C%d R%d %.17g\n")
    with path.open("w") as file:
        file.write("NAME program FREE\nROWS\n N R0\n")
        file.writelines(_lines(" %s R%d\n", kinds, np.arange(1, 1 + len(kinds))))
        file.write("COLUMNS\n")
        file.writelines(coefficients(column[:split], entries.indices[:split], entries.data[:split]))
        file.write(" M1 'MARKER' 'INTORG'\n")
        file.writelines(coefficients(column[split:], entries.indices[split:], entries.data[split:]))
        file.write(" M2 'MARKER' 'INTEND'\nRHS\n")
        file.writelines(_lines(" RHS R%d %.17g\n", np.arange(1, 1 + len(sides)), sides))
        file.write("RANGES\n")
        file.writelines(_lines(" RANGES R%d %.17g\n", 1 + ranged, (row_upper - row_lower)[ranged]))
        file.write("BOUNDS\n")
        file.writelines(_bounds("LO", "MI", program.lower[order]))
        file.writelines(_bounds("UP", "PL", program.upper[order]))
        file.write("ENDATA\n")


def _lines(form: str, *parts: np.ndarray) -> Iterator[str]:
    return map(form.__mod__, zip(*(part.tolist() for part in parts), strict=True))


def _bounds(finite: str, infinite: str, values: Array) -> Iterator[str]:
    """Every bound is written: what MPS takes for granted of a whole column differs from reader to reader."""
    bounded = np.isfinite(values)
    yield from _lines(f" {finite} BOUNDS C%d %.17g\n", np.flatnonzero(bounded), values[bounded])
    yield from _lines(f" {infinite} BOUNDS C%d\n", np.flatnonzero(~bounded))
