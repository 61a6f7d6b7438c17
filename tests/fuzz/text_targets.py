"""Files that people write by hand: schemas, causal models, rules; and tables."""

import bz2
import gzip
import json
import lzma
import random
import tomllib
from pathlib import Path
from typing import Any

import verifair as vf
from tests.fuzz import mutate
from verifair import datasets
from verifair.datasets.table import read_table
from verifair.schema.draft import draft
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.hyfair.explain import rules_file

DATA = Path(datasets.__file__).parent / "data"


class Toml:
    """Trees of TOML files changed, or their bytes."""

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.3:
            return mutate.bytes_mutant(rng, data)
        if rng.random() < 0.01:  # a key of many parts, somewhere
            lines, key = data.decode().splitlines(), ".".join("a" * rng.choice((20, 50_000)))
            lines.insert(rng.randrange(len(lines) + 1), rng.choice((f"{key} = 1", f"[{key}]")))
            return "\n".join(lines).encode()
        content = _trimmed(rng, tomllib.loads(data.decode()))
        return mutate.toml_text(mutate.tree_mutant(rng, content, gentle=0.4)).encode("utf-8", "surrogatepass")


def _trimmed(rng: random.Random, content: dict[str, Any]) -> dict[str, Any]:
    """Fewer features, so that changes meet: mutations of one of a hundred categories find little."""
    if len(content.get("feature", ())) > 4 and rng.random() < 0.7:
        content["feature"] = rng.sample(content["feature"], 4)
        content.pop("constraint", None)
    return content


class SchemaTarget(Toml):
    """`Schema.load`, then what everything else asks of a schema first."""

    name = "schema"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        found = {path.name: path.read_bytes() for path in DATA.glob("*.toml") if path.name.count(".") == 1}
        features = WRITTEN[WRITTEN.index("[[feature]]") :]
        rules = ("class in [low, medium]", "class >= 1", "class = 2")
        many = {
            f"classes{k}.toml": f'[model]\npositive = "{rule}"\nclasses = ["high", "low", "medium"]\nlabel = "good"\n\n{features}'
            for k, rule in enumerate(rules)
        }
        return {**found, "written.toml": WRITTEN.encode(), **{name: text.encode() for name, text in many.items()}}

    def read(self, path: Path) -> str:
        schema = vf.Schema.load(path)
        again = vf.Schema.loads(schema.dumps(), name=str(path))
        if again != schema or again.sha256 != schema.sha256:
            raise AssertionError("written and read again, it is another schema")
        domain = schema.domain
        middle = domain.lower + (domain.upper - domain.lower) / 2
        schema.decode([float(low) for low in domain.lower])
        domain.legal(middle[None])
        domain.encode(domain.lower[None])
        return "schema"


class CausalTarget(Toml):
    """`verifair cst`: the causal file, its graph and mechanisms; paths in it do not leave its folder."""

    name = "causal"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in DATA.glob("*.causal.toml")} | {"given.causal.toml": CAUSAL.encode()}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.15:
            content = tomllib.loads(data.decode())
            where = rng.choice(("../secret.onnx", "/etc/passwd", "a/../../b", "x.onnx", "", "\x00", "a" * 5000, "link"))
            content["decision"] = {"network": where, "schema": rng.choice(("s.toml", where))}
            return mutate.toml_text(content).encode()
        return super().mutate(rng, name, data)

    def read(self, path: Path) -> str:
        link = path.parent / "link"
        if not link.is_symlink():
            link.symlink_to("/etc/passwd")
        found = causal_file.load(path)
        for inside in (found.network_path, found.schema_path):
            if inside is not None and not inside.is_relative_to(path.parent.resolve()):
                raise AssertionError(f"{inside} leaves the folder")
        from verifair.systems.cst.causal.model import CausalModel

        CausalModel(nodes=found.nodes)
        return "causal model"


class RulesTarget:
    """The rules that `verifair guard` applies."""

    name = "rules"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        return {"rules.json": json.dumps(RULES).encode(), "few.json": b'{"rules": [{"when": {"age": {"low": 31, "high": 45}}}]}'}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.25:
            return mutate.bytes_mutant(rng, data)
        return mutate.text(mutate.tree_mutant(rng, json.loads(data), gentle=0.4)).encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        found = rules_file.load(path, ADULT)
        " ".join(found.words).encode()
        return "rules"


class TableTarget:
    """`read_table`, a schema drafted from it, and it read by a schema that it does not fit."""

    name = "table"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        frame = datasets.load("german").frame.head(30)
        text = frame.to_csv(index=False).encode()
        packed = folder / "t.parquet"
        frame.to_parquet(packed)
        return {
            "t.csv": text,
            "t.csv.gz": gzip.compress(text, mtime=0),
            "t.csv.bz2": bz2.compress(text),
            "t.csv.xz": lzma.compress(text),
            "t.parquet": packed.read_bytes(),
        }

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        packing = {
            ".gz": (gzip.compress, gzip.decompress),
            ".bz2": (bz2.compress, bz2.decompress),
            ".xz": (lzma.compress, lzma.decompress),
        }
        suffix = Path(name).suffix
        if suffix == ".parquet" or rng.random() < 0.15:
            return mutate.bytes_mutant(rng, data)
        pack, unpack = packing.get(suffix, (bytes, bytes))
        if suffix in packing and rng.random() < 0.02:
            return {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(b"1,2\n" * (1 << 20)) * 600  # type: ignore[no-any-return]
        return pack(_table_mutant(rng, unpack(data)))

    def read(self, path: Path) -> str:
        frame = read_table(path)
        try:
            GERMAN.raw(frame, outside="keep")
            GERMAN.labels(frame)
        except vf.errors.DataError as error:
            if str(path) not in str(error):
                raise AssertionError("the message does not name the file") from error
        target = str(frame.columns[-1])
        drafted = draft(frame, target=target)
        vf.Schema.loads(drafted)
        return "table"


CELLS = (
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e400",
    "-1e308",
    "1e-400",
    "9" * 400,
    "0x10",
    "1_000",
    "True",
    "false",
    "None",
    "NA",
    "\x00",
    "é",
    "\ufeff",
    '"',
    '""',
    '"a,b"',
    '"a\nb"',
    "'",
    "a;b",
    "=1+1",
    "2020-01-01",
    "1j",
    "x" * 100_000,
    "\u202e",
    "-0",
    "00012",
    "1.0",
    "१२",
)


def _table_mutant(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        return mutate.bytes_mutant(rng, data)
    lines = [line.split(",") for line in data.decode().splitlines()]
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = rng.choice((0, rng.randrange(len(lines))))
        column = rng.randrange(len(lines[row])) if lines[row] else 0
        match rng.randrange(8):
            case 0 | 1 if lines[row]:
                lines[row][column] = rng.choice(CELLS)
            case 2:
                lines[row].insert(column, rng.choice(CELLS))
            case 3 if lines[row]:
                del lines[row][column]
            case 4:  # a whole column
                value = rng.choice(CELLS)
                for k, line in enumerate(lines[1:]):
                    if column < len(line):
                        line[column] = value if rng.random() < 0.9 else str(k)
            case 5 if len(lines) > 1:
                del lines[rng.randrange(len(lines)) :]
                lines = lines or [[""]]
            case 6 if len(lines[row]) < 1000:
                lines[row] = lines[row] * rng.choice((2, 3000))
            case _ if row:
                lines[0] = rng.choice(([rng.choice(CELLS)], lines[0][::-1], [lines[0][0]] * len(lines[0]), ["a"] + lines[0]))
    separator = rng.choice((",",) * 8 + (";", "\t"))
    return "\n".join(separator.join(line) for line in lines).encode(rng.choice(("utf-8",) * 8 + ("utf-16", "latin-1")), "replace")


GERMAN = datasets.load("german").schema
ADULT = datasets.load("adult").schema
WRITTEN = """
[model]
positive = "class = 1"
label = "good"
positive_label = 1
outcomes = ["no", "yes"]

[[feature]]
name = "age"
kind = "integer"
range = [10, 100]
unit = 1
unit_name = "years"
scale = { offset = 10, scale = 90 }
change = "increase"
merit = true

[[feature]]
name = "job"
kind = "one-hot"
categories = ["a", "b", "c"]
ordered = true
moves = { a = ["b"], b = ["a", "c"] }

[[feature]]
name = "sex"
column = "gender"
kind = "categorical"
categories = ["F", "M"]
codes = [1, 2]
protected = true
description = "as recorded"

[[feature]]
name = "income"
kind = "real"
range = [0.5, 1e6]
scale = "minmax"

[[constraint]]
name = "the young earn little"
if = { age = { high = 15 } }
then = { income = { high = 1000 }, job = ["a", "b"] }

[[constraint]]
never = { job = "c", sex = "F", age = [10, 11, 12] }
"""
CAUSAL = """
[[causal.node]]
name = "sex"

[[causal.node]]
name = "income"
parents = ["sex"]
mechanism = "linear"
coefficients = { sex = { M = 1.5 } }
errors = { sex = { M = 0.25 } }
intercept = 2.0
range = [0, 100]
decimals = 2

[[causal.node]]
name = "job"
parents = ["sex", "income"]
mechanism = "categorical"
classifier = "forest"

[[causal.node]]
name = "years"
parents = ["income", "job"]
mechanism = "log-linear"
reference = { job = "a" }

[situation]
do = { sex = "M" }
attributes = ["income", "years"]
k = [5, 15]
tau = 0.05
level = 0.95
sides = 1

[decision]
weights = { income = 1.0, years = 0.5 }
above = 10
"""
RULES: dict[str, Any] = {
    "kind": "verifair-rules",
    "model_sha256": "0" * 64,
    "schema_sha256": ADULT.sha256,
    "query": {
        "protected": ["race"],
        "buckets": 20,
        "box": {"age": [30, 40], "workclass": "Private"},
        "values": {"race": [0.0, 1.0]},
    },
    "settings": {"delta": 0.1, "samples": 1000, "seed": 0},
    "clusters": [],
    "rules": [
        {
            "when": {"age": {"low": 31, "high": 45}, "relationship": ["Own-child", "Spouse"]},
            "words": "x",
            "size": 2,
            "cluster": 0,
            "evidence": {},
        },
        {"when": {"hours-per-week": {"low": 40}}, "words": "y", "size": 1, "cluster": 0},
    ],
}
