"""What an audit file may say, and what is said of one that may not."""

from pathlib import Path

import pytest

from verifair import datasets
from verifair.auditing.audit_file import AuditFile, load, loads
from verifair.auditing.example import EXAMPLE
from verifair.auditing.settings import analysis_of
from verifair.auditing.subject import read
from verifair.errors import DataError, QueryError, SchemaError
from verifair.systems.hyfair.certify.settings import CertifySettings
from verifair.systems.pba.settings import PbaSettings

WHOLE = """
title = "T"
seed = 3
timeout = 20
[model]
file = "net.onnx"
[schema]
file = "net.toml"
[sensitive]
features = ["sex"]
[analyses.pba]
delta = [1, 2]
[analyses.certify]
box = { age = [30, 40], sex = "Male" }
"""


def build(text: str, folder: Path = Path()) -> AuditFile:
    return loads(text, name="audit.toml", folder=folder.resolve())


def test_what_a_file_says_is_read() -> None:
    file = build(WHOLE)
    assert (file.title, file.head.seed, file.head.timeout, file.data) == ("T", 3, 20.0, None)
    pba, certify = file.analyses["pba"].settings, file.analyses["certify"].settings
    assert isinstance(pba, PbaSettings)
    assert isinstance(certify, CertifySettings)
    assert pba.delta == (1.0, 2.0)
    assert certify.box == {"age": (30, 40), "sex": "Male"}
    assert list(file.analyses) == ["pba", "certify"]


@pytest.mark.parametrize("name", ["german", "adult"])
def test_shipped_files_fit_their_networks_and_ask_for_everything(name: str) -> None:
    file = load(datasets.audit_path(name))
    assert list(file.analyses) == ["pba", "certify", "kmax", "fgce", "cec", "cst"]
    subject = read(file)
    assert subject.protected == file.sensitive.features if file.sensitive else False
    assert subject.rows().count == len(datasets.load(name).frame)


def test_the_starting_file_is_a_right_one() -> None:
    file = build(EXAMPLE)
    assert list(file.analyses) == ["pba", "certify", "kmax", "fgce", "cec"]


def test_a_schema_beside_a_shipped_model_is_dropped_whatever_it_holds(tmp_path: Path) -> None:
    """A missing file was asked for, only to be told to drop the section."""
    text = '[model]\ndemo = "adult"\n[schema]\ndemo = "adult"\n[analyses.pba]\n'
    with pytest.raises(SchemaError) as error:
        loads(text, name="audit.toml", folder=tmp_path)
    assert str(error.value) == (
        "audit.toml: [schema]: [model] demo = 'adult' brings its own schema; drop the section, or name a model's file"
    )


@pytest.mark.parametrize(("was", "becomes", "parts"), [
    ('title = "T"', "titel = 'T'", ["titel: unknown key or section", "did you mean 'title'?"]),
    ("seed = 3", "seed = -1", ["seed = -1, expected a whole number of at least 0 and below 4294967296, such as 0"]),
    ("seed = 3", 'seed = "3"', ["seed", "valid integer", "found '3'"]),
    ("timeout = 20", "timeout = 0", ["timeout = 0, expected a number above 0, such as 3600"]),
    ("timeout = 20", "timeout = inf", ["timeout", "finite"]),
    ("[model]", "[modell]", ["modell: unknown key or section", "did you mean 'model'?", "[model]: is missing"]),
    ('file = "net.onnx"', "", ["[model]: needs file", "or demo"]),
    ('file = "net.onnx"', 'file = "net.onnx"\ndemo = "german"', ["[model]: needs file", "one of the two"]),
    ('file = "net.onnx"', 'demo = "compas"', ["[model]: demo", "'german' or 'adult'", "found 'compas'"]),
    ('file = "net.onnx"', 'demo = "german"', ["[schema]", "brings its own schema", "drop the section"]),
    ('[schema]\nfile = "net.toml"', "", ["[schema]: is missing", 'file = "..."']),
    ('features = ["sex"]', 'features = "sex"', ["[sensitive]: features", "valid list", "found 'sex'"]),
    ('features = ["sex"]', "features = []", ["[sensitive]: features names none", "drop the section"]),
    ("delta = [1, 2]", "delta = [-1]", ["[analyses.pba]: delta.0 = -1, expected a number of at least 0, such as 1"]),
    ("delta = [1, 2]", "delta = 1", ["[analyses.pba]: delta", "valid list", "found 1"]),
    ("delta = [1, 2]", "dleta = [1]", ["[analyses.pba]: dleta: unknown key; did you mean 'delta'?"]),
    ("delta = [1, 2]", "rows = 0", ["[analyses.pba]: rows = 0, expected a whole number of at least 1"]),
    ("[analyses.pba]", "[analyses.bpa]", ["[analyses.bpa]: unknown analysis", "did you mean 'pba'?"]),
    ("[30, 40]", "[30]", ["[analyses.certify]: box: age", "a value, or [low, high]"]),
    ("[30, 40]", "{ low = 3 }", ["[analyses.certify]: box: age", "found {'low': 3}"]),
    ("box =", "epsilon = -1.5\nbox =", ["[analyses.certify]: epsilon = -1.5, expected a number above 0"]),
    ("box =", "partition = 1\nbox =", ["[analyses.certify]: partition = 1, expected a whole number of at least 2"]),
    ("[analyses.certify]", "[analyses.cst]", ["[analyses.cst]: causal: is missing", "box: unknown key"]),
    ("[analyses.certify]", "[analyses.fgce]\nsplit = { age = [60, 25] }\n[analyses.certify]", ["split.age: found [60.0", "rise"]),
    ("[model]", "[data]\ndemo = \"german\"\nfile = \"x.csv\"\n[model]", ["[data]: needs file", "one of the two"]),
    ("[model]", "[data]\nfile = \"x.csv\"\nrows = \"test\"\n[model]", ["[data]: rows", "only shipped examples"]),
    ("[model]", "[[model]]", ["[model]: found [", "expected a section of keys"]),
    ("[model]", "[model", ["audit.toml: not valid TOML"]),
])
def test_what_is_wrong_is_told_with_section_key_and_remedy(was: str, becomes: str, parts: list[str]) -> None:
    assert was in WHOLE
    with pytest.raises(SchemaError) as raised:
        build(WHOLE.replace(was, becomes, 1))
    told = str(raised.value)
    assert told.startswith("audit.toml")
    for part in parts:
        assert part in told, told


def test_all_problems_are_told_at_once_and_no_analysis_is_one() -> None:
    with pytest.raises(SchemaError) as raised:
        build("seed = -1\n[model]\nfiel = 'x'\n")
    told = str(raised.value)
    for part in ("seed", "[model]: fiel", "[analyses]: names no analysis; add one or more of [analyses.pba]"):
        assert part in told


@pytest.mark.parametrize("written", ["../net.onnx", "/etc/hostname", "link/net.onnx", "sub/../../net.onnx"])
def test_paths_stay_in_the_folder_unless_a_root_widens_it(written: str, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "net.onnx").write_bytes(b"")
    (folder / "link").symlink_to(tmp_path)
    path = folder / "audit.toml"
    path.write_text(WHOLE, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"\[model\]: file = .* leads out of the folder .*--root"):
        load(path).inside("model", "file", written)
    if written != "/etc/hostname":
        assert load(path, root=tmp_path).inside("model", "file", written) == (tmp_path / "net.onnx").resolve()


def test_paths_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(WHOLE, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"audit.toml: \[schema\]: file = 'net.toml': there is no such file"):
        read(load(path))
    with pytest.raises(SchemaError, match=r"is no path|leads out|no such file"):
        load(path).inside("model", "file", "net\0.onnx")
    with pytest.raises(QueryError, match=r"--root .*: is no folder"):
        load(path, root=tmp_path / "none")
    with pytest.raises(SchemaError, match="cannot be read"):
        load(tmp_path / "none.toml")


def german(tmp_path: Path, more: str = "", rows: int = 20) -> Path:
    """An audit file beside a copy of the German network, its schema and some rows."""
    data = datasets.network_path("german").parent
    for name in ("german.onnx", "german.toml"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    datasets.german().frame.head(rows).to_csv(tmp_path / "rows.csv", index=False)
    path = tmp_path / "audit.toml"
    text = '[model]\nfile = "german.onnx"\n[schema]\nfile = "german.toml"\n[data]\nfile = "rows.csv"\n[analyses.pba]\n'
    path.write_text(text + more, encoding="utf-8")
    return path


def test_sensitive_features_are_those_of_the_schema_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    assert read(load(german(tmp_path))).protected == ("age", "sex")
    with pytest.raises(SchemaError, match=r"\[sensitive\]: features: there is no feature 'sexx'.*did you mean 'sex'"):
        read(load(german(tmp_path, '[sensitive]\nfeatures = ["sexx"]\n')))


def test_features_that_analyses_name_are_checked_before_the_work(tmp_path: Path) -> None:
    more = "protected = ['sexx']\n[analyses.certify]\nbox = { duraton = 3 }\n[analyses.kmax]\nvalues = { sez = [1] }\n"
    path = german(tmp_path, more)
    with pytest.raises(SchemaError) as raised:
        read(load(path))
    told = str(raised.value).splitlines()
    assert len(told) == 3
    assert "audit.toml: [analyses.pba]: protected: there is no feature 'sexx' in the schema; did you mean 'sex'?" in told[0]
    assert "[analyses.certify]: box: there is no feature 'duraton'" in told[1]
    assert "[analyses.kmax]: values: there is no feature 'sez'" in told[2]
    more = "[analyses.cec]\nprotected = ['credit']\n[analyses.fgce]\nprotected = ['credits']\n"  # a column of the table alone
    with pytest.raises(SchemaError, match=r"\[analyses.fgce\]: protected: there is no feature 'credits'"):
        read(load(german(tmp_path, more)))


def test_rows_outside_the_schema_are_an_error_or_left_out_and_said(tmp_path: Path) -> None:
    path = german(tmp_path)
    table = (tmp_path / "rows.csv").read_text().splitlines()
    frame = datasets.german().frame.head(20).copy()
    frame.loc[3, "duration"] = 900
    frame.loc[5, "housing"] = "castle"  # no category of the schema
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert len(table) == 21
    with pytest.raises(DataError, match=r"'housing'.*castle.*\[data\], and in Python: outside = \"drop\""):
        read(load(path))
    path.write_text(path.read_text().replace('"rows.csv"', '"rows.csv"\noutside = "drop"'))
    subject = read(load(path))
    assert (subject.rows().count, subject.dropped) == (18, 2)
    assert "2 rows outside the schema left out" in subject.some(None, 0)[1]
    drawn, words = subject.some(5, 0)
    assert drawn.count == 5
    assert "5 of the table's 18 rows, drawn at random (seed 0)" in words


@pytest.mark.parametrize(
    ("verb", "content", "said"),
    [
        ("pba", {"robustness": "no"}, "robustness: Input should be a valid boolean, found 'no'"),
        ("certify", {"maximise": 1}, "maximise: Input should be a valid boolean, found 1"),
        ("certify", {"partition": "10"}, "partition: Input should be a valid integer, found '10'"),
        ("certify", {"epsilon": "0.1"}, "epsilon: Input should be a valid number, found '0.1'"),
        ("certify", {"protected": []}, "protected: List should have at least 1 item"),
        ("certify", {"box": ["age=3"]}, "expected { feature = value }"),
        (
            "certify", {"maximise": False, "tolerance": 1e-4},
            "tolerance: belongs to maximise = true or share = true: add one, or drop tolerance",
        ),
        ("kmax", {"buckets": 20.0}, "buckets: Input should be a valid integer, found 20.0"),
    ],
)
def test_values_of_another_type_and_texts_of_a_command_are_refused(verb: str, content: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaError) as met:
        analysis_of(verb, content)
    assert said.replace("'", '"') in str(met.value).replace("'", '"')


def test_whole_numbers_stand_for_others() -> None:
    assert analysis_of("certify", {"effort": 5}).effort == 5
    assert analysis_of("pba", {"delta": [1, 2.5]}).settings.delta == (1.0, 2.5)
