"""Audit files: all that `verifair audit` does before its first analysis, with files beside them, and the same files outside."""

import os
import random
import tomllib
from functools import cache
from pathlib import Path

from tests.fuzz import mutate, world
from tests.fuzz.target import never_opens
from tests.fuzz.text_targets import DATA, Toml
from verifair.auditing import audit_file, subject
from verifair.auditing.run import _pin

OUTSIDE = "@OUTSIDE@"
"""Stands in a file for the folder that must not be read."""
WHERE = (("model",), ("schema",), ("data",), ("analyses", "cst"))
"""Sections that name a file."""


class AuditTarget(Toml):
    """Names that begin with `wide` lie in a folder of their own, and are read with --root, the folder above."""

    name = "audit"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        plain = AUDIT.encode()
        return {
            "plain.audit.toml": plain,
            "wide.audit.toml": plain.replace(b'"small.', b'"../small.').replace(b'"people', b'"../people'),
            "german.audit.toml": (DATA / "german.audit.toml").read_bytes(),
        }

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if name.startswith("german") or rng.random() < 0.6:
            return super().mutate(rng, name, data)
        content = tomllib.loads(data.decode())
        section = content
        for key in rng.choice(WHERE):
            section = section[key]
        key = "file" if "file" in section else "causal"
        section[key] = _elsewhere(rng, Path(section[key]).name)
        return mutate.toml_text(content).encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        home, root = path.parent, None
        outside = home.parent / "outside"
        _beside(home, outside)
        content = path.read_bytes().replace(OUTSIDE.encode(), str(outside).encode())
        if path.name.startswith("wide"):
            root, path = home, home / "deep" / path.name
        path.write_bytes(content)
        with never_opens([outside.resolve()]):
            asked = audit_file.load(path, root=root)
            found = subject.read(asked)
            options = found.check_options(home)
            for key, settings in asked.analyses.items():
                _pin(key, settings, found, asked.head.seed, options)
        for read in (found.model, found.schema_path) if asked.model.demo is None else ():
            if read is None or not read.is_relative_to(home.resolve()):
                raise AssertionError(f"{read} lies outside")
        return f"audit of {len(asked.analyses)}, {'a table' if found.frame is not None else found.words}"


def _elsewhere(rng: random.Random, name: str) -> str:
    """A path that leads out of the folder, or nowhere; some lead back in."""
    return rng.choice((
        f"../outside/{name}",
        f"../../outside/{name}",
        f"{OUTSIDE}/{name}",
        f"./../outside/./{name}",
        f"deep/../../outside/{name}",
        f"out/{name}",
        f"../out/{name}",
        f"link-{name}",
        f"../link-{name}",
        f"deep/up/outside/{name}",
        f"here/{name}",
        f"../here/{name}",
        f"..\\outside\\{name}",
        f"~/{name}",
        f"file://{OUTSIDE}/{name}",
        f"http://127.0.0.1:9/{name}",
        f"s3://x/{name}",
        "/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/environ",
        "pipe",
        "round",
        "deep",
        ".",
        "..",
        "\x00",
        f"{name}\x00",
        "a" * 5000,
        "a/" * 3000 + name,
        "é\u202e" + name,
        "$HOME",
        f"{name}/",
        f"{name}/.",
        f" {name}",
    ))


def _beside(home: Path, outside: Path) -> None:
    """The small world's files in the folder and outside of it, and links that lead out, back and in a circle."""
    if (home / ".there").exists():
        return
    for folder in (home, outside):
        folder.mkdir(exist_ok=True)
        for name, content in _files().items():
            (folder / name).write_bytes(content)
            if folder is home:
                (home / f"link-{name}").symlink_to(outside / name)
    (home / "deep").mkdir()
    (home / "deep" / "up").symlink_to("../..")
    for link, goal in (("out", "../outside"), ("here", "."), ("round", "round")):
        (home / link).symlink_to(goal)
    os.mkfifo(home / "pipe")
    (home / ".there").touch()


@cache
def _files() -> dict[str, bytes]:
    return {
        "small.onnx": Path(str(world.network().source)).read_bytes(),
        "small.toml": world.SCHEMA.dumps().encode(),
        "people.csv": world.frame().to_csv(index=False).encode(),
        "german.causal.toml": (DATA / "german.causal.toml").read_bytes(),
        "small.causal.toml": b'[[causal.node]]\nname = "sex"\n[[causal.node]]\nname = "hours"\nparents = ["sex"]\n',
    }


AUDIT = """
title = "Of the small world"
seed = 3
timeout = 5

[model]
file = "small.onnx"

[schema]
file = "small.toml"

[data]
file = "people.csv"
outside = "drop"

[sensitive]
features = ["sex", "race"]

[analyses.pba]
delta = [0, 1.5]
robustness = false
rows = 20

[analyses.certify]
epsilon = 0.05
box = { age = [1, 3], work = "b", hours = 2 }
partition = 10
tolerance = 0.01
effort = 2.5

[analyses.kmax]
protected = ["sex"]
values = { race = [0, 1] }
buckets = 10

[analyses.fgce]
k = 5
coverage = 0.9
max_cost = 3.5
split = { age = [2, 4] }
changes = { age = "increase", work = "fixed" }
robust = [1]

[analyses.cec]
tau = 0.4
threshold = 0.6
certify = 1

[analyses.cst]
causal = "small.causal.toml"
do = { sex = "m" }
k = [3, 5]
tau = 0.1
certify = 0.95

[gate]
four_fifths = 0.8
flips_in_data = 0.01
certified_gap = 0.2
certified_share = 0.9
pba_share = 0.5
unknown = "pass"
"""
