"""What a notebook shows: short lines, tables and pictures, with nothing in them that a browser would run."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import verifair as vf
from tests.builders import categorical, linear_network, real, schema_of
from tests.tree_models import save
from verifair import datasets
from verifair.notebook.shown import Drawing, Pictured, Shown

HOSTILE = "<script>alert('x')</script>"
MODEL, SCHEMA = datasets.network_path("german"), Path(datasets.__file__).parent / "data" / "german.toml"


def held(tmp_path: Path) -> dict[str, object]:
    """An object of each kind, from real questions about the shipped network."""
    network, schema = vf.read_onnx(MODEL), vf.Schema.load(SCHEMA)
    box = {"model": network, "schema": schema, "protected": ["sex"], "box": {"age": ("Junior", "Junior")}}
    fair = vf.IndividualFairness(**box, epsilon=0.9)
    flips = vf.IndividualFairness(model=linear_network(2.0, -2.0, bias=0.1), schema=small(), protected=["sex"])
    gap, kmax = vf.ProbabilityGap(**box), vf.KDiscrimination(**box)
    proved, refuted = vf.verify(fair), vf.verify(flips)
    assert proved.certificate is not None
    assert refuted.witness is not None
    vf.certify_partition(fair, size=1000, store=tmp_path / "parts.sqlite")
    budget = vf.Budget(seconds=2)
    share = vf.certify_share(flips, budget=budget)
    widest = vf.verify(kmax, budget=budget)
    return {
        "network": network, "schema": schema, "feature": schema.features[0], "fair": fair, "gap query": gap, "kmax query": kmax,
        "pba": vf.PersistentBias(model=network, schema=schema, protected="sex", delta=[1]),
        "robustness": vf.Robustness(model=network, schema=schema, delta=[1]), "budget": budget, "proved": proved,
        "certificate": proved.certificate, "refuted": refuted, "witness": refuted.witness, "gap": vf.verify(gap, budget=budget),
        "kmax": widest, "kmax certificate": widest.certificate, "share": share, "share certificate": share.certificate,
        "several": vf.counterexamples(flips, 2), "partition": vf.partition_summary(tmp_path / "parts.sqlite", query=fair),
        "finding": vf.Finding(kind="width", value=3.0, method="search", seed=0, details={"x": "y" * 9999}),
    }  # fmt: skip


def small() -> vf.Schema:
    return schema_of(categorical("sex", HOSTILE, "$other$"), real("income", 0, 1))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return held(tmp_path_factory.mktemp("notebook"))


RESULTS = ("proved", "refuted", "witness", "gap", "kmax", "share", "several", "partition", "finding")


def test_every_line_is_short(objects: dict[str, object]) -> None:
    lines = {f"{name}, {told.__name__}": told(one) for name, one in objects.items() if name != "feature" for told in (repr, str)}
    assert {name: text for name, text in lines.items() if len(text) > 200 or "\n" in text} == {}
    assert len(lines) >= 2 * (len(RESULTS) + 8)
    assert repr(objects["fair"]).startswith("IndividualFairness(model=Network")


def test_everything_shown_has_a_table(objects: dict[str, object]) -> None:
    for name, one in objects.items():
        if isinstance(one, Shown):
            frame = one.to_frame()
            assert isinstance(frame, pd.DataFrame), name
            assert len(frame), name
            assert "<table" in one._repr_html_(), name


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_has_a_picture(objects: dict[str, object], name: str, tmp_path: Path) -> None:
    one = objects[name]
    assert isinstance(one, Pictured)
    drawn = one.plot()
    assert isinstance(drawn, Drawing)
    assert "<svg" in drawn._repr_svg_()
    assert drawn.save(tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_names_are_escaped_in_html(objects: dict[str, object]) -> None:
    witness = objects["witness"]
    assert isinstance(witness, vf.Witness)
    assert HOSTILE in map(str, witness.to_frame().to_numpy().ravel())
    for shown in (witness, objects["several"], small()):
        assert isinstance(shown, Shown)
        assert "<script" not in shown._repr_html_()
        assert "&lt;script" in shown._repr_html_()


def test_a_model_says_what_it_is_made_of(objects: dict[str, object], tmp_path: Path) -> None:
    network = objects["network"]
    assert isinstance(network, vf.Network)
    assert "hidden layers of 100 and 50 neurons (piecewise linear), 10,852 weights" in repr(network)
    assert network.source_sha256 in network._repr_html_()
    hostile = replace(network, source=HOSTILE)
    trees = vf.read_model(save(tmp_path / "trees.onnx", [(0, "BRANCH_LEQ", 1.0, [0.5], [-0.5]), [0.25]], 3))
    assert repr(trees).startswith("TreeEnsemble(3 input columns; 2 trees, 3 leaves")
    for model in (hostile, trees):
        assert "<table" in model._repr_html_()
        assert "<script" not in model._repr_html_()


def test_bounds_keep_all_their_digits(objects: dict[str, object]) -> None:
    gap = objects["gap"]
    assert isinstance(gap, vf.MaximumGap)
    assert gap.to_frame().loc["upper", "value"] == repr(float(gap.upper))


def test_a_schema_lists_its_features() -> None:
    frame = small().to_frame()
    assert list(frame.index) == ["sex", "income"]
    assert frame.loc["income", "values"] == "0.0 to 1.0"


def test_no_dataclass_of_a_result_writes_out_all_its_arrays() -> None:
    """A dataclass replaces an inherited __repr__ unless it has repr=False: 97,000 characters of an audit of 1,000 people."""
    import verifair.systems.cec.audit
    import verifair.systems.cst.robustness.sensitivity
    import verifair.systems.cst.testing

    findings = vf.Finding.__subclasses__()
    assert {verifair.systems.cec.audit.ComparedPairs, verifair.systems.cst.testing.Situations} < set(findings)
    assert [one.__name__ for one in findings if one.__repr__ is not Shown.__repr__] == []
