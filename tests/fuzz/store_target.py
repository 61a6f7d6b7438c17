"""Stores of `verifair pba`, damaged; a run goes on with them."""

import random
import tempfile
from pathlib import Path

import verifair as vf
from tests.fuzz import certificate_target, mutate, world
from verifair.engine.partition import certify_partition
from verifair.engine.store import count
from verifair.systems.pba.evidence import certificate_of, witness_of
from verifair.systems.pba.rows import Table

ROWS = 6
"""So few that a run that begins again is no matter."""


def _bias() -> vf.PersistentBias:
    return vf.PersistentBias(network=world.network(), schema=world.SCHEMA, sensitive="sex", delta=[1])


class StoreTarget:
    """`verify_rows(store=..., resume=True)`, and what `verifair pba` then makes of it: a certificate, witnesses, counts."""

    name = "store"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as made:
            path = Path(made) / "run.sqlite"
            vf.verify_rows(_bias(), world.frame().head(ROWS), store=path)
            return {"run.sqlite": path.read_bytes()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        return mutate.bytes_mutant(rng, data) if rng.random() < 0.3 else certificate_target.store_mutant(rng, data)

    def read(self, path: Path) -> str:
        _alone(path)
        table = world.frame().head(ROWS)
        found = vf.verify_rows(_bias(), table, store=path, resume=True, budget=vf.Budget(seconds=5))
        certificate = certificate_of(_bias(), Table.of(world.network(), world.SCHEMA, table), found)
        for line in found[found["status"] == "violated"].itertuples(index=False):
            witness_of(_bias(), line)
        report = vf.check(certificate, network=world.network(), schema=world.SCHEMA)
        kinds = "+".join(key for key, number in count(found).items() if number)
        return f"{kinds}, proofs {'accepted' if report.accepted else 'rejected'}"


class ResumeTarget(certificate_target.PartitionTarget):
    """`certify_partition(resume=True)` on a damaged store."""

    name = "resume"
    suffixes = ("parts.sqlite",)

    def read(self, path: Path) -> str:
        _alone(path)
        query = vf.IndividualFairness(network=world.network(), schema=world.SCHEMA, protected=["sex"])
        certify_partition(query, size=2, store=path, resume=True, budget=vf.Budget(seconds=5))
        from verifair.systems.hyfair.certify.share import summary

        return "+".join(key for key, number in summary(path, query=query).parts if number)


def _alone(path: Path) -> None:
    """Without the journal of the file that had this name before."""
    for side in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + side).unlink(missing_ok=True)
