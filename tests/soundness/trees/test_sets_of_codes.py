"""Trees about sets of codes, stored as chains of splits: verdicts against every row, their proofs checked, and forged proofs."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import verifair as vf
from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.trees.ensemble import TreeEnsemble
from tests.builders import categorical, integer, schema_of
from tests.tree_models import Chains
from verifair.checker.certificates.certificate import Certificate


def flips(ensemble: TreeEnsemble, of: vf.Schema) -> bool:
    """Whether some row is decided otherwise if the last feature alone changes."""
    rows = np.array(list(itertools.product(*map(range, of.domain.upper.astype(int) + 1))), dtype=float)
    positive = ensemble.forward(exact(of.domain.encode(rows))).to_fractions()[:, 0] > 0
    return bool((positive.reshape(-1, 2)[:, 0] != positive.reshape(-1, 2)[:, 1]).any())


@pytest.mark.parametrize("codes", [12, 64, 65, 130])
def test_verdicts_about_sets_of_codes_are_true(codes: int) -> None:
    """A machine word is a set of 64."""
    of = schema_of(integer("town", 0, codes - 1), integer("job", 0, 8), categorical("p", "f", "m"), positive="logit > 0")
    proved, counts = list[Certificate](), Counter[bool]()
    for seed in range(24 if codes < 64 else 9):
        rng = np.random.default_rng(seed)
        chains = Chains(rng, {0: codes, 1: 9, 2: 2})
        for _ in range(int(rng.integers(1, 5))):
            chains.add(3)
        ensemble = chains.ensemble(
            link=Link.SIGMOID, base=np.array([float(rng.choice([-3, 0, 3]))]), source_sha256=f"{seed:064d}")
        truth = flips(ensemble, of)
        counts[truth] += 1
        found = vf.verify(vf.IndividualFairness(model=ensemble, schema=of, protected=["p"]), budget=vf.Budget(seconds=60))
        assert found.status is (vf.Status.VIOLATED if truth else vf.Status.PROVED), seed
        if found.certificate is not None:
            assert vf.check(found.certificate, model=ensemble, schema=of).accepted, seed
            proved.append(found.certificate)
        for certificate in proved if truth else ():     # a proof about another model
            forged = replace(certificate, network_sha256=ensemble.source_sha256)
            assert not vf.check(forged, model=ensemble, schema=of).accepted, seed
    assert min(counts[True], counts[False]) > 1
