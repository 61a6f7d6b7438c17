"""What a sentence says of ties is what the decision does."""

from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.onnx.reader import read_model
from tests.builders import linear_network, network_of, one_hot, schema_of
from tests.tree_models import save
from verifair.checker.certificates.statement import signs_flaw
from verifair.checker.words import decided

SETS = [(n, chosen) for n in (3, 4) for chosen in chain.from_iterable(combinations(range(n), size) for size in range(1, n))]
PEOPLE = np.eye(2)


def constant(kind: str, outputs: list[float], path: Path) -> Model:
    """A model that gives everybody these outputs; leaves of 2^-30 beside them are far from the others."""
    if kind == "network":
        return network_of((np.zeros((len(outputs), 2)), np.array(outputs)))
    return read_model(save(path / "trees.onnx", [outputs, [2.0**-30] * len(outputs)], 2))


@pytest.mark.parametrize("kind", ["network", "trees"])
@pytest.mark.parametrize(("classes", "chosen"), SETS)
def test_a_tie_goes_where_the_sentence_says(classes: int, chosen: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    """Of sets of three and four classes: "the lower class" only where argmax gives every tie of two to the side that g does."""
    schema = schema_of(one_hot("sex", "m", "f", protected=True), positive=f"class in [{', '.join(map(str, chosen))}]")
    good, alike = schema.outcome.good, []
    for tied in combinations(range(classes), 2):
        outputs = np.isin(np.arange(classes), tied).astype(float)
        model = constant(kind, outputs.tolist(), tmp_path)
        judged = schema.judges(model)
        signs = {*judged.forward(exact(PEOPLE)).sign.ravel().tolist(), *np.sign(judged.forward(PEOPLE)).ravel().tolist()}
        assert judged.decision is not None
        signs.add(int(np.sign(judged.decision.of(outputs[None])[0, 0])))
        assert len(signs) == 1
        favourable = bool(signs.pop() > 0) == bool(good)
        alike.append(favourable == (int(outputs.argmax()) in chosen))
    said = decided("deployed", model, schema)
    assert all(alike) or kind == "network"
    assert ("a tie goes to the lower class" in said) == all(alike), said
    assert ("a tie with another class is not favourable" in said) == (not all(alike))
    one_sided = chosen in (tuple(range(len(chosen))), tuple(range(classes - len(chosen), classes)))
    assert (signs_flaw("strict", judged) is None) == (kind == "network" or one_sided)


def test_the_favourable_side_of_zero_is_named() -> None:
    person = one_hot("sex", "m", "f", protected=True)
    lower, upper = schema_of(person, positive="class = 0"), schema_of(person, positive="class = 1")
    one, two = linear_network(0, 0), network_of((np.zeros((2, 2)), None))
    assert decided("deployed", one, lower) == " (favourable means logit <= 0)"
    assert decided("strict", two, lower).startswith(" (favourable means difference of the logits < 0, unfavourable > 0; ties")
    assert decided("deployed", one, upper) == " (positive means logit > 0)"
