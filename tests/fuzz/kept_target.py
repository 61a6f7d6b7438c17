"""What runs that are gone on with left on disk: journals of bench, finished sections of audit, and stores of pba."""

import contextlib
import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

import verifair as vf
from tests import audit_sample
from tests.bench_support import record
from tests.fuzz import certificate_target, mutate, world
from verifair.auditing.compare import compare, load
from verifair.auditing.result import AuditResult
from verifair.auditing.run import RESUME, Places, _digest, _saved_section
from verifair.bench.records import NAME, Journal
from verifair.bench.tables import comparison, to_dict, write_tables
from verifair.engine.partition import certify_partition
from verifair.papers.catalog import Printed, Request
from verifair.papers.reproduce import pairs, reproduce
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.stream import LabelledRows
from verifair.systems.results.files import json_text, plain, save_json
from verifair.systems.results.findings import DataTable, Evidence, Section, Standing, Statement, Tone, WitnessRow

SETTINGS = {"verifair": "0.7.0", "python": "3.11", "machine": "x86_64", "limit": 5.0, "seed": 0}


class BenchTarget:
    """`verifair bench --resume`: what is asked again, and what is summed up and written of what was measured before."""

    name = "bench"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        with Journal(folder / "made", SETTINGS, resume=False) as journal:
            for kind in ("decision", "relaxation", "minimum", "center"):
                for number in range(2):
                    case: dict[str, Any] = {"case": f"{kind}/{number}", "family": kind, "kind": kind, "question": f"{kind}{number}"}
                    journal.add(record(**case, status="optimal" if number else "proved", upper=0.75, trust="exact"))
                    case |= {"method": "milp", "solver": "highs"}
                    journal.add(record(**case, trust="claimed", build_seconds=0.5, solve_seconds=2.5))
                    journal.add(record(**case, repeat=1, status="unknown", reason="time", trust=""))
        return {NAME: (folder / "made" / NAME).read_bytes(), "short.jsonl": json.dumps({"settings": SETTINGS}).encode() + b"\n"}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.25:
            return mutate.bytes_mutant(rng, data)
        lines = [json.loads(line) for line in data.splitlines()]
        for _ in range(rng.choice((1, 1, 2))):
            k = rng.randrange(len(lines))
            lines[k] = mutate.tree_mutant(rng, lines[k], gentle=0.4)
        if rng.random() < 0.1:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
        return "".join(mutate.text(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        folder = path.parent / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / NAME).write_bytes(path.read_bytes())
        with Journal(folder, SETTINGS, resume=True) as journal:
            records = list(journal.records.values())
            for one in records:
                journal.holds(one.case, one.competitor, one.repeat, one.question, one.version)
            journal.add(record())
        with Journal(folder, SETTINGS, resume=True) as again:
            if len(again.records) != len({*(one.key for one in records), record().key}):
                raise AssertionError("written and read again, it is another journal")
        found = comparison(records, 5.0)
        if records:
            write_tables(found, folder)
        save_json(folder / "bench.json", to_dict(found))
        json.loads((folder / "bench.json").read_text(encoding="utf-8"), parse_constant=_constant)
        return f"{'runs' if records else 'no runs'}, {'disagreements' if found.contradictions else 'no disagreement'}"


def _constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


class KeptTarget:
    """`verifair audit --resume`: a section that was finished before is shown again, or asked again."""

    name = "kept"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        section = plain(SECTION.model_dump())
        return {"pba.json": json.dumps({"pin": "p", "share": 10.0, "section": section, "sha256": _digest(section)}).encode()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.25:
            return mutate.bytes_mutant(rng, data)
        text = mutate.text(mutate.tree_mutant(rng, json.loads(data), gentle=0.4))
        if rng.random() < 0.9:
            with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):  # it was no section any more
                content = json.loads(text)
                text = json.dumps({**content, "sha256": _digest(content["section"])})
        return text.encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        places = Places(page=path.parent / "page.html", json=path.parent / "page.json")
        (places.work / RESUME).mkdir(parents=True, exist_ok=True)
        (places.work / "proof.json").write_bytes(b"")
        (places.work / RESUME / "pba.json").write_bytes(path.read_bytes())
        found = _saved_section(places, "pba", "p", 10.0)
        return "asked again" if found is None else "shown again"


SECTION = Section(
    key="pba", title="t", question="q", method="m", source="s", semantics="real", seconds=1.5,
    statements=(Statement(text="a", standing=Standing.PROVED, tone=Tone.GOOD, headline=True),),
    witnesses=(
        WitnessRow(
            analysis="pba", person={"age": "34 years"}, changes={"sex": ("f", "m")}, before=0.25, after=0.75, flips=True,
            float32_agrees=None, sentence="s",
        ),
    ),
    tables=(DataTable(title="t", rows=pd.DataFrame({"a": [1, 2], "b": ["x", None]})),),
    evidence=(
        Evidence(
            file="page.files/proof.json", proves="p", command="c", checked="accepted",
            sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
    ),
    settings={"delta": [1.0]}, answer={"proved": 3},
)


class AgainstTarget:
    """`verifair audit --against`: the JSON of an audit that somebody else ran, compared with ours and written again."""

    name = "against"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        return {"page.json": json_text(_audit()).encode()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.2:
            return mutate.bytes_mutant(rng, data)
        return mutate.text(mutate.tree_mutant(rng, json.loads(data), gentle=0.5)).encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        found = compare(_audit(), load(path))
        json.loads(json_text(found))
        return found.headline


@cache
def _audit() -> AuditResult:
    return audit_sample.audit(witnesses=2, groups=True)


class ReproduceTarget:
    """`verifair reproduce --resume`: a part of a table that was made before."""

    name = "reproduce"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        return {"part.csv": _part_of_a_table(Request(dataset="a", folder=None, seed=0, seconds=1.0)).to_csv(index=False).encode()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        return mutate.bytes_mutant(rng, data)

    def read(self, path: Path) -> str:
        printed = Printed(name="table 3", about="shares", datasets=("a",), make=_part_of_a_table, keys=("who",), seeds=2)
        kept = path.parent / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        asked: dict[str, Any] = {"folder": None, "datasets": (), "seeds": 2, "seconds": 1.0, "kept": kept}
        reproduce(printed, **asked)
        first = sorted(kept.iterdir())[0]
        first.write_bytes(path.read_bytes())
        made = reproduce(printed, **asked, resume=True)
        return f"{len(list(pairs(made.frame)))} columns compared"


def _part_of_a_table(request: Request) -> pd.DataFrame:
    return pd.DataFrame({"who": [request.dataset, "all"], "share": [0.2 + request.seed, 1.0], "paper's share": [0.5, 0.9]})


# Stores of `verifair pba`, damaged; a run goes on with them.


ROWS = 6
"""So few that a run that begins again is no matter."""


def _bias() -> vf.PersistentBias:
    return vf.PersistentBias(model=world.network(), schema=world.SCHEMA, protected="sex", delta=[1])


class StoreTarget:
    """`verify_rows(store=..., resume=True)`, and what `verifair pba` then makes of it: a certificate, counts."""

    name = "store"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as made:
            path = Path(made) / "run.sqlite"
            verify_rows(_bias(), world.frame().head(ROWS), store=path)
            return {"run.sqlite": path.read_bytes()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        return mutate.bytes_mutant(rng, data) if rng.random() < 0.3 else certificate_target.store_mutant(rng, data)

    def read(self, path: Path) -> str:
        _alone(path)
        table = world.frame().head(ROWS)
        found = verify_rows(_bias(), table, store=path, resume=True, budget=vf.Budget(seconds=5))
        certificate = certificate_of(_bias(), LabelledRows.of(world.network(), world.SCHEMA, table), found)
        report = vf.check(certificate, model=world.network(), schema=world.SCHEMA)
        kinds = "+".join(sorted(set(found["status"])))
        return f"{kinds}, proofs {'accepted' if report.accepted else 'rejected'}"


class ResumeTarget(certificate_target.PartitionTarget):
    """`certify_partition(resume=True)` on a damaged store."""

    name = "resume"
    suffixes = ("parts.sqlite",)

    def read(self, path: Path) -> str:
        _alone(path)
        query = vf.IndividualFairness(model=world.network(), schema=world.SCHEMA, protected=["sex"])
        certify_partition(query, size=2, store=path, resume=True, budget=vf.Budget(seconds=5))
        from verifair.systems.hyfair.certify.partition import partition_summary

        return "+".join(key for key, number in partition_summary(path, query=query).parts if number)


def _alone(path: Path) -> None:
    """Without the journal of the file that had this name before."""
    for side in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + side).unlink(missing_ok=True)
