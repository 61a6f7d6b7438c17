"""Files that fuzzing found a reader to stumble over (`tests/fuzz`), made by hand: each is refused in our own words, at once."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import sqlite3
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.bench_support import record
from tests.builders import categorical, integer, network_of, real, schema_of
from tests.command_line import RUN
from verifair.auditing import audit_file
from verifair.auditing.run import RESUME, Places, _digest, _saved_section
from verifair.bench.records import Journal
from verifair.checker import partition
from verifair.checker.certificates import envelope as certificate_file
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.check import check
from verifair.checker.kinds.consistency import ExplanationBounds, surely_near
from verifair.checker.partition import PartitionStore
from verifair.datasets import table
from verifair.datasets.table import read_table
from verifair.errors import CertificateError, DataError, SchemaError
from verifair.schema import file as schema_file
from verifair.schema.rows import numeric
from verifair.schema.schema import Schema
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.results.files import save_text

SCHEMA = schema_of(
    integer("age", 0, 9_999),
    integer("hours", 0, 9_999),
    integer("weeks", 0, 9_999),
    categorical("sex", "f", "m", protected=True),
)
NETWORK = network_of((np.ones((1, 4)), None))


# Text

FEATURE = '[[feature]]\nname = "a"\nkind = "real"\nrange = [0, 1]\n'


def test_numbers_too_long_for_python() -> None:
    with pytest.raises(SchemaError, match="not valid TOML"):
        Schema.loads(FEATURE + "unit = " + "9" * 5000)


def test_a_megabyte_where_a_word_is_expected_is_not_printed_again() -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.loads(FEATURE + f'unit = "{"x" * 1_000_000}"')
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("part", ["a", "a-1 . ", '"a b"', r'"\"."', "'.'", '""'])
@pytest.mark.parametrize("line", ["{key} = 1", "[{key}]", "[[{key}]]", "a = {{ {key} = 1 }}"])
def test_keys_of_very_many_parts(part: str, line: str) -> None:
    """Python's parser would take a minute and 14 GB for a file of 120 kB."""
    text = "x = 1\n" + line.format(key=".".join([part.rstrip(" .")] * 60_000))
    with pytest.raises(SchemaError, match=r"line 2: a key of more than 30 parts"):
        Schema.loads(text)


@pytest.mark.parametrize("bit", [r',\"', ',"\\', r'{\"a\": ', ',"a\\" ', '{"', ", '", "a."])
def test_quotes_without_number_are_passed_at_once(bit: str) -> None:
    """A search that began anew at each of them would take hours."""
    with pytest.raises(SchemaError, match="not valid TOML"):
        Schema.loads('a = "' + bit * 100_000 + "\n=")


def test_dots_that_make_no_key() -> None:
    with pytest.raises(SchemaError, match="not valid TOML"):
        Schema.loads("a" * 1_000_000 + " " * 1_000_000 + '"' * 100_001 + "'" * 100_001)
    name = ". ".join(["A sentence"] * 40) + "..."
    assert Schema.loads(FEATURE + f'description = "{name}"').features[0].description == name


def test_files_that_nobody_writes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.toml").write_text(FEATURE)
    assert Schema.load(tmp_path / "s.toml").features[0].name == "a"
    monkeypatch.setattr(schema_file, "MAX_BYTES", len(FEATURE) - 1)
    with pytest.raises(SchemaError, match="is larger than"):
        Schema.load(tmp_path / "s.toml")


def test_the_first_of_many_problems_are_told() -> None:
    with pytest.raises(SchemaError, match=r"number 99: found 0.*\n(.*\n)?s\.toml: and 2,900 more problems of this file$") as caught:
        Schema.loads(f"feature = {[0] * 3000}", name="s.toml")
    assert len(str(caught.value).splitlines()) == 101
    assert len(str(caught.value)) < 20_000


def test_ten_thousand_features_named_twice_are_found_at_once() -> None:
    features = [real(f"f{k % 10_000}", 0, 1) for k in range(20_000)]
    with pytest.raises(SchemaError, match="named twice"):
        schema_of(*features)


@pytest.mark.parametrize("name", ["a\x00b", "round"])
def test_paths_of_causal_files_that_cannot_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    path = tmp_path / "c.toml"
    path.write_text(f'[[causal.node]]\nname = "a"\n[decision]\nnetwork = {json.dumps(name)}\nschema = "s.toml"\n')
    with pytest.raises(SchemaError, match="no file can be called that"):
        assert causal_file.load(path).network_path


@pytest.mark.parametrize("text", [
    '{"rules": [{"when": {"\\ud800": "a"}}]}', '{"rules": [{"when": {"age": ' + "9" * 5000 + "}}]}", "[" * 100_000,
    '{"rules": \x00}',
])
def test_rules_that_are_no_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(DataError, match=r"not valid JSON|nested too deeply"):
        rules_file.load(tmp_path / "rules.json", SCHEMA)


def test_what_is_found_in_rules_is_told_in_short(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"when": {"age": "old" * 100_000}}]}))
    with pytest.raises(DataError, match=r"rule 1: feature 'age': 'oldold[old]* \.\.\. is not a number") as error:
        rules_file.load(tmp_path / "rules.json", SCHEMA)
    assert len(str(error.value)) < 500


# Tables


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.csv", "a,b\n" + "1,2\n" * 100_000)


@pytest.mark.parametrize(("name", "write"), [
    ("t.csv.gz", lambda path: path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))),
    ("t.csv.xz", lambda path: path.write_bytes(lzma.compress(b"a,b\n" + b"1,2\n" * 100_000))),
    ("t.csv.zip", zipped),
])
def test_a_table_that_unpacks_to_too_much(
    name: str, write: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name)
    assert len(read_table(tmp_path / name)) == 100_000
    monkeypatch.setattr(table, "MAX_UNPACKED", 399_999)
    with pytest.raises(DataError, match="unpacks to more than"):
        read_table(tmp_path / name)


def test_a_little_file_is_not_unpacked_for_minutes(tmp_path: Path) -> None:
    """Two gigabytes of equal rows in 140 kB: bzip2 takes long over them."""
    (tmp_path / "t.csv.bz2").write_bytes(bz2.compress(b"1,2\n" * (1 << 20)) * 600)
    with pytest.raises(DataError, match="unpacks to more than 64 MiB"):
        read_table(tmp_path / "t.csv.bz2")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zip"])
def test_more_columns_than_anybody_has(suffix: str, tmp_path: Path) -> None:
    """pandas takes seconds over each ten thousand, and two passes."""
    text = ",".join(f"c{k}" for k in range(200_000)) + "\n" + ",".join(["1"] * 200_000) + "\n"
    path = tmp_path / f"t.csv{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("t.csv", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    with pytest.raises(DataError, match="has 200,000 columns, at most 10,000 are read"):
        read_table(path)


@pytest.mark.parametrize("text", [
    "a;b" * 100_000 + "\n1\n", ",".join(["a" * 1000, "b" * 1000] * 500) + "\n1\n", '"' + "a" * 1_000_000 + "\n",
])
def test_headers_are_not_printed_whole(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / "t.csv")
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("cell", ["9" * 400, "-" + "9" * 400])
def test_numbers_of_hundreds_of_digits(cell: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"age,hours,weeks,sex\n1,2,3,f\n{cell},2,3,m\nx,2,3,m\n")
    with pytest.raises(DataError, match="expected a finite number"):
        SCHEMA.raw(read_table(tmp_path / "t.csv"))
    found = numeric(pd.Series(["1.5", cell, "x", None, 10**400]))
    assert found.tolist()[:2] == [1.5, float(cell)]
    assert np.isnan(found[2:4]).all()
    assert found[4] == np.inf


def test_texts_of_a_parquet_file_that_are_none(tmp_path: Path) -> None:
    pd.DataFrame({"sex": ["female", "male!!"] * 3}).to_parquet(tmp_path / "t.parquet", compression=None)
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content.replace(b"female", b"fem\xe5le"))
    with pytest.raises(DataError, match="cannot be read as a table"):
        read_table(tmp_path / "t.parquet")


def test_what_a_parquet_file_notes_of_types_is_no_type(tmp_path: Path) -> None:
    pd.DataFrame({"sex": [1, 2] * 3}).to_parquet(tmp_path / "t.parquet", compression=None)
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content.replace(b'"numpy_type": "int64"', b'"numpy_type": "iot64"'))
    with pytest.raises(DataError, match=r"cannot be read as a table .*types for pandas.*iot64"):
        read_table(tmp_path / "t.parquet")


def test_an_archive_with_a_password(tmp_path: Path) -> None:
    zipped(tmp_path / "t.csv.zip")
    content = bytearray((tmp_path / "t.csv.zip").read_bytes())
    content[6] |= 1  # of the file, and of its entry in the archive's list
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "t.csv.zip").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a table"):
        read_table(tmp_path / "t.csv.zip")


def test_equal_cells_of_a_parquet_file_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"a": np.zeros(100_000), "b": np.zeros(100_000)}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(table, "MAX_CELLS", 199_999)
    with pytest.raises(DataError, match="100,000 rows of 2 columns"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(("name", "content"), [
    ("t.csv.xz", lzma.compress(b"a,b\n1,2\n")[:-9]), ("t.csv.xz", b"\xfd7zXZ\x00broken"), ("t.csv.bz2", b"BZh9x"),
    ("t.csv.zip", b"PK\x03\x04"), ("t.csv.zst", b"\x28\xb5\x2f\xfd"), ("t.tar", b"x" * 1024),
    ("t.parquet", b"PAR1" + b"\xff" * 50 + b"PAR1"), ("t.csv", b'a,b\n"1,2\n'),
])
def test_tables_damaged_in_their_packing(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        read_table(tmp_path / name)


# Certificates


def test_a_certificate_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = gzip.compress(b" " * (1 << 20))
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b'{"format":"verifair-certificate/3",') + member * 3)
    monkeypatch.setattr(certificate_file, "MAX_BYTES", 1 << 21)
    with pytest.raises(CertificateError, match="larger than 2 MiB"):
        Certificate.load(tmp_path / "c.json.gz")


def test_brackets_that_would_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.json").write_text('{"format": "' + Certificate.FORMAT + '", "proofs": [' + ",".join(["[]"] * 100_000) + "]}")
    monkeypatch.setattr(certificate_file, "MAX_MEMORY", 1 << 20)
    with pytest.raises(CertificateError, match="100,002 lists"):
        Certificate.load(tmp_path / "c.json")


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', '{"format": "a", "format": ["a"]}'])
def test_json_that_is_no_certificate(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CertificateError):
        Certificate.load(tmp_path / "c.json")


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\uDFFF": 1}', '["\\udc00\\ud800"]'])
def test_half_a_character_in_a_certificate(text: str, tmp_path: Path) -> None:
    """Its statement would be printed, and no terminal can."""
    (tmp_path / "c.json").write_text(f'{{"format": "{Certificate.FORMAT}", "features": {text}}}')
    with pytest.raises(CertificateError, match="half a character"):
        Certificate.load(tmp_path / "c.json")
    (tmp_path / "c.json").write_text(f'{{"format": "{Certificate.FORMAT}", "features": "\\ud83d\\ude00"}}')
    with pytest.raises(CertificateError, match="features is not what it should be"):
        Certificate.load(tmp_path / "c.json")


@pytest.mark.parametrize("threshold", [0.5, 0.75, 0.99])
@pytest.mark.parametrize("sizes", [(1e200, 1e200), (1e200, 1.0), (1.0, 1e200), (1e160, 1e140), (1e150, 1e-150)])
def test_explanations_whose_squares_overflow_prove_nothing(sizes: tuple[float, float], threshold: float) -> None:
    first, second = (
        ExplanationBounds(centre=np.array([size, 0.0]), columns=np.zeros((1, 2)), rest=0.0, radius=0.0, decision=1)
        for size in sizes
    )
    opposed = replace(second, centre=-second.centre)  # of score 1
    assert first.least > 0
    assert not surely_near(first, opposed, threshold, 1e-12)
    assert not surely_near(opposed, first, threshold, 1e-12)


# Stores

ABOUT: dict[str, Any] = {
    "network_sha256": NETWORK.source_sha256, "output": None, "rounded": [], "schema_sha256": SCHEMA.sha256, "protected": ["sex"],
    "box": {"age": [0.0, 9_999.0], "hours": [0.0, 9_999.0], "weeks": [0.0, 9_999.0], "sex": [0.0, 1.0]},
    "differ": "all", "arithmetic": "real", "epsilon": None, "scale": "probability", "signs": "deployed", "relax": {}, "size": 10,
    "parts": 1_000_000_000, "step": 10,
}


def store(path: Path, *statements: str, arrays: bytes = b"", **about: Any) -> Path:
    PartitionStore(path, {**ABOUT, **about}).connection.close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO chunks VALUES (0, 1, ?, 0, 1, 0.5, ?)", (b"\x01", arrays))
        for statement in statements:
            file.execute(statement)
        file.commit()
    return path


@pytest.mark.parametrize("statements", [
    ["DROP TABLE chunks", "CREATE VIEW chunks AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"],
    ["CREATE TRIGGER t AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END"], ["CREATE INDEX i ON chunks (count)"],
    ["CREATE TABLE more (x)"],
    ["DROP TABLE chunks", "CREATE TABLE chunks (first, count, status AS (zeroblob(900000000)), nodes, seconds, arrays)"],
])
@pytest.mark.parametrize("resumed", [False, True])
def test_sqlite_computes_nothing_for_its_author(statements: list[str], resumed: bool, tmp_path: Path) -> None:
    """Views that never end, triggers on what is written, columns that are computed."""
    path = store(tmp_path / "s.sqlite", *statements)
    with pytest.raises((CertificateError, DataError), match=r"others than ours|tables of its own|without|with the tables"):
        PartitionStore(path, ABOUT if resumed else None, resume=resumed)


def test_a_bomb_among_the_arrays_is_not_unpacked(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(1 << 29), 9)
    assert len(packed) < 1 << 20
    path = store(tmp_path / "s.sqlite", arrays=packed)
    with PartitionStore(path) as found, pytest.raises(CertificateError, match="is damaged"):
        found.chunk(0)
    assert partition.MAX_UNPACKED < 1 << 29


@pytest.mark.parametrize("value", ["'text'", "NULL", "7", "x''", "x'01020304'", "x'07'"])
def test_statuses_that_are_none(value: str, tmp_path: Path) -> None:
    path = store(tmp_path / "s.sqlite", f"UPDATE chunks SET status = {value}")
    with PartitionStore(path) as found, pytest.raises(CertificateError):
        list(found.statuses())


@pytest.mark.parametrize("about", [
    {"protected": ["age", "hours", "sex"]}, {"protected": ["age", "sex"]}, {"relax": {"age": 100, "hours": 100, "weeks": 100}},
])
def test_pairs_without_number_are_not_listed(about: dict[str, Any], tmp_path: Path) -> None:
    """Two hundred million combinations would be listed before anything is checked."""
    found = check(store(tmp_path / "s.sqlite", **about), model=NETWORK, schema=SCHEMA)
    assert "more pairs, shifts or parts" in str(found.rejections[0])


@pytest.mark.parametrize("about", [
    {"size": "10"}, {"size": 10.5}, {"size": True}, {"relax": {"age": 1.5}}, {"epsilon": "0.1"}, {"signs": "loose"},
    {"signs": ["strict"]},
    {"box": {"age": ["0", 1], "hours": [0, 1], "weeks": [0, 1], "sex": [0, 1]}},
])
def test_numbers_are_not_read_from_texts(about: dict[str, Any], tmp_path: Path) -> None:
    """What is said to be proved is printed as it stands in the file: it is read as it stands there, too."""
    with pytest.raises(CertificateError, match="is malformed"):
        check(store(tmp_path / "s.sqlite", **about), model=NETWORK, schema=SCHEMA)


@pytest.mark.parametrize("about", [{"relax": 7}, {"relax": [[]]}, {"relax": "age"}, {"box": 3}, {"size": "\ud800"}])
def test_a_statement_of_another_network_that_describes_nothing(about: dict[str, Any], tmp_path: Path) -> None:
    """Such a file is rejected for its network; its statement was made all the same, and failed."""
    found = check(store(tmp_path / "s.sqlite", network_sha256="1" * 64, **about), model=NETWORK, schema=SCHEMA)
    assert "another network" in str(found.rejections[0])
    assert found.statement.encode().startswith(b"It states")


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
def test_numbers_that_json_does_not_have(number: str, tmp_path: Path) -> None:
    changed = f"""UPDATE about SET value = replace(value, '"size": 10', '"size": {number}')"""
    with pytest.raises(CertificateError, match="is a damaged SQLite file"):
        check(store(tmp_path / "s.sqlite", changed), model=NETWORK, schema=SCHEMA)


# Audit files

AUDIT = '[schema]\nfile = "s.toml"\n[analyses.pba]\n[model]\nfile = '


@pytest.mark.parametrize("written", [
    "../m.onnx", "/etc/passwd", "deep/../../m.onnx", "out/m.onnx", "link.onnx", "a\x00b", "round", "a" * 5000, "a/" * 5000, "deep",
])
def test_paths_of_audit_files_that_lead_out_or_nowhere(written: str, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "m.onnx").touch()
    for name, goal in (("out", ".."), ("link.onnx", "../m.onnx"), ("round", "round")):
        (folder / name).symlink_to(goal)
    (folder / "a.toml").write_text(AUDIT + json.dumps(written) + "\n")
    with pytest.raises(SchemaError, match=r"leads out of the folder|is no path|there is no such file"):
        audit_file.load(folder / "a.toml").inside("model", "file", written)


def test_what_stands_in_place_of_a_section_is_not_printed_whole(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f'model = "{"x" * 1_000_000}"\n')
    with pytest.raises(SchemaError) as caught:
        audit_file.load(tmp_path / "a.toml")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("damage", [
    {"witnesses": [{"changes": 1.5}]}, {"tables": [{"title": "", "note": "", "columns": ["a"], "rows": [[1], []]}]},
    {"tables": [3]}, {"statements": None}, {"evidence": [{}]},
])
def test_a_section_that_was_kept_and_damaged_is_asked_again(damage: dict[str, Any], tmp_path: Path) -> None:
    places = Places(page=tmp_path / "p.html", json=tmp_path / "p.json")
    (places.work / RESUME).mkdir(parents=True)
    section = {
        "key": "pba", "title": "", "question": "", "method": "", "source": "", "semantics": "", "statements": [], "witnesses": [],
        "pictures": [], "tables": [], "evidence": [],
    }
    for content, expected in ((section, "pba"), ({**section, **damage}, None)):
        (places.work / RESUME / "pba.json").write_text(
            json.dumps({"pin": "", "share": 1.0, "cut": False, "sha256": _digest(content), "section": content})
        )
        found = _saved_section(places, "pba", "", 1.0)
        assert (found.key if found else None) == expected


# Journals of benchmarks


@pytest.mark.parametrize("line", [
    "[" * 100_000, '{"settings": [1]}', '{"settings": 5}', '{"settings": null}', '{"settings": {"limit": ' + "9" * 5000 + "}}",
])
def test_journals_whose_settings_are_none(line: str, tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match="is no journal"):
        Journal(tmp_path, {"limit": 5.0}, resume=True)


@pytest.mark.parametrize("changed", [
    {"case": ["x"]}, {"kind": "none"}, {"status": "PROVED"}, {"total_seconds": "1"}, {"total_seconds": -1.0}, {"size": 1.5},
    {"repeat": True}, {"comparable": 1}, {"total_seconds": float("nan")}, {"peak_mb": float("inf")}, {"upper": 10**400},
    {"note": None}, {"note": "\ud800"}, {"case": "a\udfff"},
])
def test_runs_that_nobody_measured(changed: dict[str, Any], tmp_path: Path) -> None:
    with Journal(tmp_path, {"limit": 5.0}, resume=False) as journal:
        journal.add(record())
    whole = (tmp_path / "runs.jsonl").read_text()
    with Journal(tmp_path, {"limit": 5.0}, resume=True) as journal:
        assert list(journal.records.values()) == [record()]
    (tmp_path / "runs.jsonl").write_text(whole + json.dumps({**record().to_dict(), **changed}) + "\n")
    with pytest.raises(DataError, match="is no journal"):
        Journal(tmp_path, {"limit": 5.0}, resume=True)


# Names of files that are no text


def test_names_that_are_no_text_are_shown_and_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"no\xfftext.onnx")
    told = [*RUN, "verify", name]
    found = subprocess.run(told, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"})
    assert (found.returncode, "Traceback" in found.stderr) == (2, False)
    assert "no\\udcfftext.onnx: cannot be read" in found.stderr
    save_text(tmp_path / "page.html", f"about {name}")
    assert (tmp_path / "page.html").read_text() == "about no\\udcfftext.onnx"
