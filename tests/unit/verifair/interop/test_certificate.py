"""Certificates of unsat queries: what the engine proves is re-proved, what was changed or claims too much is not."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoders.vnnlib.cases import cases
from encoders.vnnlib.reader import VnnlibQuery, read_vnnlib
from encoders.vnnlib.writer import decimal
from solvers.outcome import Budget
from tests.builders import random_network
from tests.unit.verifair.interop.test_decide import HAT, IDENTITY, old, query, stored, twin
from tests.unit.verifair.interop.test_export import query as fairness
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.tree import Tree
from verifair.errors import CertificateError
from verifair.interop.certificate import CaseProof, VnnlibCertificate, rejections
from verifair.interop.decide import VnnlibStatus, decide, networks_of
from verifair.interop.export import NETWORK, PRODUCT, export
from verifair.interop.problems import case_problems


def proof(asked: VnnlibQuery, *networks) -> VnnlibCertificate:
    found = decide(asked, networks, budget=Budget(seconds=20), method="bnb")
    assert found.answer is VnnlibStatus.UNSAT, found
    assert found.certificate is not None
    return found.certificate


def test_proofs_are_saved_and_re_proved(tmp_path: Path) -> None:
    net = stored(random_network(np.random.default_rng(5), (3, 6, 4, 2)), tmp_path / "net.onnx")
    hat = stored(HAT, tmp_path / "hat.onnx")
    shared = ["(== X_g[0] X_f[0])", "(== X_f[1] X_g[1])", "(== X_g[2] 1.0)", "(== X_f[2] 0.0)"]
    for text, networks in (
        (old(1, 1, "(<= Y_0 -0.01)"), [hat]),
        (old(1, 1, "(or (>= Y_0 1.5) (<= Y_0 -1.0) (and (= X_0 0.25) (>= Y_0 0.3)))"), [hat]),
        (twin(3, 2, *shared, "(> (- Y_f[1] Y_f[0]) 30.0)", "(< (- Y_g[1] Y_g[0]) 0.0)"), [net, net]),
    ):
        asked = query(tmp_path, text)
        certificate = proof(asked, *networks)
        certificate.save(tmp_path / "proof.json")
        again = VnnlibCertificate.load(tmp_path / "proof.json")
        assert again.intact
        assert rejections(again, asked, networks) == []


def test_a_certificate_says_what_it_is_about_of_every_network(tmp_path: Path) -> None:
    asked = query(tmp_path, twin(1, 1, "(== X_g[0] X_f[0])", "(<= Y_f[0] -0.5)", "(< Y_g[0] 0.25)"))
    folded = replace(HAT, rounded=("w",))
    assert VnnlibCertificate.of(asked, [HAT, HAT], []).semantics == semantics(HAT)
    assert VnnlibCertificate.of(asked, [HAT, folded], []).semantics == f"f: {semantics(HAT)}; g: {semantics(folded)}"


def test_proofs_of_several_constraints_of_which_not_all_are_strict(tmp_path: Path) -> None:
    """Their leaves record no bound but 0: of several rows a bound says no more than that one of them is positive."""
    asked = query(tmp_path, twin(1, 1, "(== X_g[0] X_f[0])", "(<= Y_f[0] -0.5)", "(< Y_g[0] 0.25)"))
    assert rejections(proof(asked, HAT, HAT), asked, [HAT, HAT]) == []
    false = query(tmp_path, twin(1, 1, "(== X_g[0] X_f[0])", "(<= Y_f[0] 0.0)", "(< Y_g[0] 0.25)"))  # met where HAT is 0
    claim = replace(proof(asked, HAT, HAT), query_sha256=VnnlibCertificate.of(false, [HAT, HAT], []).query_sha256)
    assert rejections(claim, false, [HAT, HAT])


def test_the_mean_of_two_rows_stands_for_them_only_where_it_is_exact(tmp_path: Path) -> None:
    for factor, rows in ((0.5, 3), (2.0**-60, 2)):
        two = ("(< (+ (* 3.0 Y_f[0]) Y_g[0]) 0.0)", f"(< (+ (* {decimal(factor)} Y_f[0]) Y_g[0]) 0.0)")
        asked = query(tmp_path, twin(1, 1, "(== X_g[0] X_f[0])", *two))
        (case,) = cases(asked)
        assert len(next(case_problems(asked, case, [HAT, HAT])).problem.goals[0].rows) == rows


@pytest.mark.parametrize("epsilon", [None, 0.3])
def test_proofs_of_exported_queries(epsilon: float | None, tmp_path: Path) -> None:
    written = export(fairness(1, 2, epsilon=epsilon), tmp_path / "out", enumerated=["all"])
    checked = 0
    for name in written.files:
        for version, models in (("1.0", {"": PRODUCT}), ("2.0", {"f": NETWORK})):
            asked = read_vnnlib(written.folder / version / "vnnlib" / name)
            networks = networks_of(asked, {n: written.folder / version / file for n, file in models.items()})
            found = decide(asked, networks, budget=Budget(seconds=20))
            if found.certificate is not None:
                assert rejections(found.certificate, asked, networks) == []
                checked += 1
    assert checked >= 2


def test_what_is_no_proof_is_rejected(tmp_path: Path) -> None:
    asked = query(tmp_path, old(1, 1, "(<= Y_0 -0.01)"))
    good = proof(asked, HAT)
    empty = replace(good, cases=(CaseProof(way="scalar", tree=Tree.leaf()),))
    assert rejections(replace(good, cases=()), asked, [HAT]) == ["it has 0 cases, the query more"]
    assert rejections(good, asked, [HAT]) == []
    for evidence, says in (
        (CaseProof(way="scalar", tree=None), "no proof"),
        (CaseProof(way="point", tree=None), "no single input"),
        (CaseProof(way="twin", tree=Tree.leaf()), "no way twin"),
        (CaseProof(way="scalar", tree=replace(Tree.leaf(), feature=np.array([3]))), "feature 3"),
    ):
        (reason,) = rejections(replace(good, cases=(evidence,)), asked, [HAT])
        assert re.search(says, reason), reason
    assert rejections(empty, asked, [HAT]) == []  # HAT is at least 0, so the whole box has bound 0.01

    false = query(tmp_path, old(1, 1, "(<= Y_0 0.5)"))
    claim = replace(good, query_sha256=VnnlibCertificate.of(false, [HAT], []).query_sha256)
    assert rejections(claim, false, [HAT])
    assert rejections(good, false, [HAT]) == ["it is about another query file"]
    asked = query(tmp_path, old(1, 1, "(<= Y_0 -0.01)"))
    assert rejections(replace(good, networks={"": "0" * 64}), asked, [HAT]) == ["it is about another network"]


def test_boxes_between_neighbouring_float32_are_not_settled_at_their_ends(tmp_path: Path) -> None:
    """x > 1 never holds on [0, 1], but no bound shows it on a box that ends at 1: points would."""
    asked = query(tmp_path, old(1, 1, "(>= Y_0 1.0)", box=("0.0", "0.99999999")))
    (case,) = cases(asked)
    certificate = VnnlibCertificate.of(asked, [IDENTITY], [CaseProof(way="scalar", tree=Tree.leaf())])
    assert case.bounds[0][1] < 1
    assert rejections(certificate, asked, [IDENTITY])  # outwards, float32 has nothing between 0.99999994 and 1


def test_malformed_trees_are_refused(tmp_path: Path) -> None:
    asked = query(tmp_path, old(1, 1, "(<= Y_0 -0.01)"))
    proof(asked, HAT).save(tmp_path / "proof.json")
    text = (tmp_path / "proof.json").read_text()
    for damage in (text.replace('"cut":[', '"cut":[0.5,'), text.replace('"way"', '"why"')):
        (tmp_path / "proof.json").write_text(damage)
        with pytest.raises(CertificateError, match=r"proof\.json"):
            VnnlibCertificate.load(tmp_path / "proof.json")
