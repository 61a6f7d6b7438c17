"""Certificates of every kind, damaged and forged; whatever is accepted must be true of the small world."""

import gzip
import json
import random
import sqlite3
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz import mutate, truth, world
from tests.fuzz.target import Untrue, skeleton
from verifair.checker import partition
from verifair.checker.certificates.extent import digest
from verifair.checker.check import check


class CertificateTarget:
    """What `verifair check` does with a file of JSON, compressed or not."""

    name = "certificate"
    suffixes = (".json", ".json.gz")

    def seeds(self, folder: Path) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as made:
            world.certificates(Path(made))
            return {path.name: path.read_bytes() for path in Path(made).iterdir() if path.name.endswith(self.suffixes)}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        zipped = name.endswith(".gz")
        if rng.random() < (0.3 if zipped else 0.1):
            return _bomb(rng) if zipped and rng.random() < 0.02 else mutate.bytes_mutant(rng, data)
        plain = gzip.decompress(data) if zipped else data
        changed = mutate.bytes_mutant(rng, plain) if rng.random() < 0.1 else self.forged(rng, json.loads(plain))
        return gzip.compress(changed, 1, mtime=0) if zipped else changed

    def forged(self, rng: random.Random, content: dict[str, Any]) -> bytes:
        """The tree of a certificate changed, its digest and its counts made to fit."""
        changed = _targeted(rng, content) if rng.random() < 0.4 else mutate.tree_mutant(rng, content, gentle=0.7)
        return sealed(rng, _recounted(changed) if rng.random() < 0.7 else changed)

    def read(self, path: Path) -> str:
        report = check(path, model=world.network(), schema=world.SCHEMA)
        statement, kind = report.statement, report.format
        statement.encode()
        if report.rejections:
            return f"rejected: {skeleton(str(report.rejections[0].reason), path)}"
        if kind == partition.FORMAT:
            false, kept = truth.partition(path), "partition"
        else:
            text = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
            content = json.loads(text)
            false, kept = truth.false(kind, content), content["query"]["kind"]
        if false is not None:
            raise Untrue(f"accepted, but {false}: {statement}")
        return f"accepted and true: {kept}, {_changed(path)}"


def sealed(rng: random.Random, content: Any) -> bytes:
    """As JSON; most of the time with a digest that fits."""
    text = mutate.text(content)
    if rng.random() < 0.9:
        try:
            parsed = json.loads(text)
            payload = {key: value for key, value in parsed.items() if key != "digest"}
            text = text.replace(str(parsed["digest"]), digest(payload))
        except (ValueError, RecursionError, AttributeError, KeyError):
            pass  # it was no certificate any more
    return text.encode("utf-8", "surrogatepass")


def _recounted(content: Any) -> Any:
    """The same with the extent that its content has, where it has one."""
    try:
        question = {key: content[key] for key in ("format", "network_sha256", "schema_sha256", "semantics", "query", "features")}
        if content["query"]["kind"] == "counterfactual-decision":
            statements = [one["statement"] for one in content["proofs"]]
            count = Counter(proved=len({json.dumps([one.get("row"), one.get("also")]) for one in statements}))
        elif "proofs" in content:
            kinds = {"tree": "proved", "phases": "proved", "claim": "claimed", "witness": "refuted"}
            count = Counter(kinds[key] for one in content["proofs"] for key in one if key in kinds)
        else:
            count = Counter(proved=len(content["pairs"] if "pairs" in content else content["query"]["combinations"]))
        found = {name: count[name] for name in ("proved", "claimed", "refuted")}
        left = {name: content["extent"][name] for name in ("undecided", "not_reached")}
        total = sum(found.values()) + sum(left.values())
        return {**content, "extent": {"question_sha256": digest(question), "total": total, **found, **left}}
    except (KeyError, TypeError, AttributeError, ValueError):
        return content


class PartitionTarget(CertificateTarget):
    """What `verifair check` does with a store of partitions."""

    name = "partition"
    suffixes = ("parts.sqlite", "parts_gap.sqlite", "parts_relaxed.sqlite")

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        return mutate.bytes_mutant(rng, data) if rng.random() < 0.3 else store_mutant(rng, data)


def _changed(path: Path) -> str:
    """Which fields of an accepted file differ from those of the valid one."""
    valid = path.parent.parent / "corpus" / path.name
    if not valid.is_file() or path.suffix == ".sqlite":
        return "changed or not"
    one, two = (json.loads(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()) for p in (valid, path))
    return "changed: " + (", ".join(sorted(set(_differences(one, two)) - {"digest"})[:6]) or "nothing")


def _differences(one: Any, two: Any, path: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        return [d for key in {*one, *two} for d in _differences(one.get(key), two.get(key), f"{path}.{key}".lstrip("."))]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [d for a, b in zip(one, two, strict=True) for d in _differences(a, b, path)]
    return [] if one == two and type(one) is type(two) else [path]


def _bomb(rng: random.Random) -> bytes:
    """Two gigabytes in two megabytes."""
    member = gzip.compress(rng.choice((b" ", b"[", b"0,")) * (1 << 19), 9, mtime=0)
    return gzip.compress(b'{"format":"verifair-certificate/3","proofs":[', mtime=0) + member * 2000


def _targeted(rng: random.Random, content: dict[str, Any]) -> dict[str, Any]:
    """What a forger would try: a stronger claim, weaker evidence, evidence of something else."""
    content = json.loads(json.dumps(content))
    query = content["query"]
    proofs = content.get("proofs") or content.get("pairs") or [content.get("tree")]
    match rng.randrange(12):
        case 0 if query.get("signs") and rng.random() < 0.5:
            query["signs"] = "strict" if query["signs"] == "deployed" else "deployed"
        case 0 if "epsilon" in query:
            query["epsilon"] = rng.choice(
                (None, (query["epsilon"] or 0.01) * rng.choice((0.5, 0.9, 0.99, 1 - 1e-9, 1.0 + 2**-52, 2)), 1e-9)
            )
        case 1 if query.get("box"):
            name = rng.choice(list(query["box"]))
            low, high = query["box"][name]
            query["box"][name] = rng.choice(
                ([low - 1, high], [low, high + 1], [low + 0.5, high], [low, high - 0.5], [low, low], [high, high])
            )
            if rng.random() < 0.2:
                del query["box"][name]
        case 2:
            query[rng.choice(("protected", "differ", "signs", "scale", "relax", "kind", "delta", "threshold", "buckets", "do"))] = (
                rng.choice((
                    ["sex"],
                    ["race"],
                    ["sex", "race"],
                    ["race", "sex"],
                    ["age"],
                    "any",
                    "all",
                    "logit",
                    "probability",
                    {},
                    {"hours": 1},
                    {"hours": 2},
                    [1.0],
                    [2.0],
                    [0.0],
                    [1e9],
                    0.0,
                    0.5,
                    1.0,
                    1e-9,
                    2,
                    20,
                    1000,
                    {"sex": 0.0},
                    {"sex": 1.0},
                    {"race": 1.0},
                    [],
                    "robustness",
                    "persistent-bias",
                ))
            )
        case 3 if "upper" in content:
            content["upper"] = max(0, content["upper"] + rng.choice((-1, -1, -2, 1)))
            content["reference"] = max(0, content["reference"] + rng.choice((-1, 0, 0, 1)))
        case 4 | 5:  # another tree: a single leaf, a cut more, bounds raised
            one = rng.choice(proofs)
            tree = one.get("tree", one) if isinstance(one, dict) else None
            if isinstance(tree, dict) and ("bound" in tree or "upper" in content):
                _other_tree(rng, tree)
        case 6 if "proofs" in content:  # the statement says something else
            statement = rng.choice(proofs)["statement"]
            key = rng.choice(list(statement))
            statement[key] = rng.choice([mutate.nudged(rng, statement[key]), rng.choice(proofs)["statement"].get(key)])
        case 7 if isinstance(content.get("proofs"), list) and len(proofs) > 1:
            k, other = rng.sample(range(len(proofs)), 2)
            evidence = next(key for key in proofs[k] if key != "statement")
            proofs[k][evidence] = proofs[other].get(evidence, proofs[k][evidence])
        case 8 if len(proofs) > 1:
            del proofs[rng.randrange(len(proofs))]
        case 9 if len(proofs) > 1:
            k, other = rng.sample(range(len(proofs)), 2)
            for key in ("row", "counterpart", "baseline"):
                if key in proofs[k]:
                    proofs[k][key] = proofs[other][rng.choice(("row", "counterpart"))] if key != "baseline" else proofs[k][key]
            if "statement" in proofs[k]:
                proofs[k]["statement"] = proofs[other]["statement"]
        case 10 if query.get("equations"):
            term = rng.choice(rng.choice(query["equations"])["terms"])
            key = rng.choice(("low", "high"))
            term[key] = term[key] + rng.choice((-2.0, -0.5, -1e-9, 1e-9, 0.5, 2.0))
        case _ if "pairs" in content:
            one = rng.choice(proofs)
            key = rng.choice(("row", "counterpart", "baseline", "tree"))
            if key == "tree":
                slices = [rng.choice((0, 1, 2, 16, 17, 256, 4096, 8192)) for _ in range(rng.randrange(4))]
                leaf = {"start": [0, len(slices)], "index": list(range(len(slices))), "value": list(map(float, slices))}
                one[key] = rng.choice(({"feature": [-1], "cut": [0.0], **leaf}, rng.choice(proofs)["tree"]))
            elif key == "baseline":
                rng.choice(content["baselines"])[rng.randrange(7)] = rng.uniform(-2, 2)
            else:
                v = rng.randrange(5)
                one[key][v] = one[key][v] + rng.choice((-1.0, 1.0, 0.5))
        case _:
            return mutate.tree_mutant(rng, content, gentle=0.9)
    return content


def _other_tree(rng: random.Random, tree: dict[str, Any]) -> None:
    match rng.randrange(5):
        case 0:
            tree.update(feature=[-1], cut=[0.0])
            if "bound" in tree:
                tree["bound"] = [rng.choice((None, 0.0, 1e-9, 1e9))]
        case 1:
            for key in tree:
                tree[key] = tree[key][: max(1, len(tree[key]) - rng.choice((1, 2)))]
        case 2 if "bound" in tree:
            tree["bound"] = [None if b is None else b * rng.choice((0.5, 2.0)) for b in tree["bound"]]
        case 3:  # a leaf is cut once more, maybe to nothing
            leaf = rng.choice([k for k, v in enumerate(tree["feature"]) if v == -1])
            v = rng.randrange(6)
            tree["feature"][leaf : leaf + 1] = [v, -1, -1]
            tree["cut"][leaf : leaf + 1] = [float(rng.randrange(-3, 6)), 0.0, 0.0]
            if "bound" in tree:
                tree["bound"][leaf : leaf + 1] = [None, tree["bound"][leaf], tree["bound"][leaf]]
        case _:
            k = rng.randrange(len(tree["feature"]))
            tree["feature"][k] = rng.choice((-1, 0, 1, 2, 3, 4, 5, -2, -20))
            tree["cut"][k] = rng.choice((0.0, 1.0, 0.5, 2.0, -1.0, 1e308))


def store_mutant(rng: random.Random, data: bytes) -> bytes:
    """An SQLite file whose rows or tables are others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        path.write_bytes(data)
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            try:
                for _ in range(rng.choice((1, 1, 2))):
                    if _store_change(rng, connection, tables):
                        break
                else:
                    if rng.random() < 0.6:
                        _recount(connection)
            except Exception:  # SQLite itself does not have it, or the first change left nothing that the second one knows
                if connection.in_transaction:
                    connection.rollback()
        connection.close()
        return path.read_bytes()


def _recount(connection: sqlite3.Connection) -> None:
    """Make the extent that a store states fit its content."""
    about = json.loads(connection.execute("SELECT value FROM about").fetchone()[0])
    found = Counter(b"".join(status for (status,) in connection.execute("SELECT status FROM chunks")))
    extent = {
        "question_sha256": digest(about), "total": about["parts"], "proved": found[partition.PROVED], "claimed": 0,
        "refuted": found[partition.VIOLATED], "undecided": found[partition.UNKNOWN],
        "not_reached": about["parts"] - found.total(),
    }
    connection.execute("UPDATE extent SET value = ?", (json.dumps(extent),))


VALUES: tuple[Any, ...] = (
    None,
    0,
    1,
    -1,
    2,
    10**12,
    2**63 - 1,
    -(2**63),
    0.5,
    1e308,
    float("inf"),
    "",
    "x",
    "\x00",
    "1",
    b"",
    b"\x00",
    b"\x01" * 36,
    b"\x7f" * 36,
    b"PK\x03\x04",
    "[" * 5000,
    "{}",
    "[]",
    "null",
    '{"a": NaN}',
    b"x" * 100_000,
    "proved",
    "violated",
    "unknown",
    "é\u202e",
)
SCHEMES = (
    "DROP TABLE {0}",
    "ALTER TABLE {0} RENAME TO other",
    "CREATE TABLE more (x)",
    "CREATE INDEX i ON {0} ({1})",
    "ALTER TABLE {0} DROP COLUMN {1}",
    "ALTER TABLE {0} ADD COLUMN extra",
    "CREATE TRIGGER t AFTER INSERT ON {0} BEGIN DELETE FROM {0}; END",
    "ALTER TABLE {0} RENAME TO o; "
    "CREATE VIEW {0} AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS {1} FROM c",
    "DROP TABLE {0}; CREATE TABLE {0} ({1}, first AS (randomblob(100000000)), count AS (1), status AS (zeroblob(900000000)), "
    "value AS (zeroblob(900000000)))",
    "ALTER TABLE {0} RENAME TO o; CREATE VIRTUAL TABLE {0} USING fts5({1})",
    "INSERT INTO {0} SELECT * FROM {0}",
    "DELETE FROM {0}",
    "DROP TABLE {0}; CREATE TABLE {0} AS SELECT 1 AS {1}",
    "PRAGMA user_version = 7",
    "PRAGMA encoding = 'UTF-16'",
    "PRAGMA journal_mode = WAL",
)


def _store_change(rng: random.Random, connection: sqlite3.Connection, tables: list[str]) -> bool:
    """One change; whether it made the tables others, so that no row of them may be looked at."""
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if rng.random() < 0.2:
        connection.executescript(rng.choice(SCHEMES).format(table, rng.choice(columns)))
        return True
    every = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
    if not every:
        return False
    row, column = rng.choice(every), rng.choice(columns)
    (old,) = connection.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (row,)).fetchone()
    new = rng.choice(VALUES)
    if rng.random() < 0.75:
        new = _value(rng, column, old, new)
    connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (new, row))
    return False


def _value(rng: random.Random, column: str, old: Any, new: Any) -> Any:
    """Near the old one: of JSON a changed tree, of packed arrays other arrays, of numbers others."""
    if column == "arrays":
        return arrays_mutant(rng, old)
    if isinstance(old, bytes) and old:
        changed = bytearray(old)
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 3, 255))
        return bytes(changed) if rng.random() < 0.7 else bytes(changed[:-1])
    if isinstance(old, str) and old[:1] in "[{":
        content = json.loads(old)
        if column == "value" and rng.random() < 0.6:
            key = rng.choice([k for k in content if not k.endswith("sha256")])
            content[key] = rng.choice((
                mutate.nudged(rng, content[key]),
                ["sex", "race"],
                ["race"],
                ["age", "hours", "work", "sex", "race"],
                {"hours": 1},
                {"hours": 100},
                {"hours": 2},
                "any",
                0.01,
                0.001,
                1e-9,
                None,
                2,
                3,
                10**6,
                2**31 - 1,
                {name: [0.0, 0.0] for name in truth.NAMES},
            ))
            return json.dumps(content)
        return mutate.text(mutate.tree_mutant(rng, content)).replace("\ud800", "")
    return mutate.nudged(rng, old) if old is not None else new


def arrays_mutant(rng: random.Random, packed: bytes) -> bytes:
    arrays = partition.unpack(packed)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(arrays))
        value = arrays[name]
        match rng.randrange(9):
            case 0:
                arrays[name] = value[:-1]
            case 1:
                arrays[name] = value.astype(rng.choice((np.float64, np.int64, np.complex128, np.uint8, "U3", object)))
            case 2:
                arrays[name] = np.concatenate([value, value])
            case 3:
                arrays[name] = value.reshape(1, -1) if value.ndim == 1 else value.ravel()
            case 4:
                return zlib.compress(zlib.decompress(packed)[: rng.choice((-1, -8, 100, 0))])
            case 5:
                arrays[name] = np.zeros(rng.choice((0, 1, 30_000_000)), dtype=np.int8)
            case _ if value.size:
                value = arrays[name] = value.copy()
                at = rng.randrange(value.size)
                new = rng.choice((-1, 0, 1, 2, 3, -2, -5, 2**31 - 1, -(2**31), float("nan"), float("inf"), 1e308, 0.5))
                value.flat[at] = (
                    new
                    if value.dtype.kind == "f"
                    else int(np.clip(np.nan_to_num(new, posinf=7), -120, 120))
                    if value.dtype == np.int8
                    else int(np.nan_to_num(np.clip(new, -(2**31), 2**31 - 1)))
                )
            case _:
                return zlib.compress(zlib.decompress(packed) + bytes(3))
    try:
        return packed_arrays(arrays)
    except (TypeError, ValueError):  # words and complex numbers are none of the format's
        return packed


def packed_arrays(arrays: dict[str, Any]) -> bytes:
    """As `pack` packs them, whatever their shapes and numbers."""
    return partition.pack(SimpleNamespace(**arrays))  # type: ignore[arg-type]
