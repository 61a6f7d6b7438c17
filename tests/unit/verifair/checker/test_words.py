"""What a sentence says of ties is what the decision does."""

from itertools import chain, combinations

import numpy as np
import pytest

from encoders.decision import Favoured
from tests.builders import one_hot, schema_of
from verifair.checker.words import decided

SETS = [(n, chosen) for n in (3, 4) for chosen in chain.from_iterable(combinations(range(n), size) for size in range(1, n))]


@pytest.mark.parametrize(("classes", "chosen"), SETS)
def test_a_tie_goes_where_the_sentence_says(classes: int, chosen: tuple[int, ...]) -> None:
    """Of sets of three and four classes: "the lower class" only where argmax gives every tie of two to the side that g does."""
    schema = schema_of(one_hot("sex", "m", "f", protected=True), positive=f"class in [{', '.join(map(str, chosen))}]")
    rest = tuple(one for one in range(classes) if one not in chosen)
    good = schema.outcome.good
    group = Favoured(groups=(chosen if good else rest,))
    alike = []
    for tied in combinations(range(classes), 2):
        outputs = np.where(np.isin(np.arange(classes), tied), 1.0, 0.0)[None]
        favourable = bool(group.of(outputs)[0, 0] > 0) == bool(good)
        alike.append(favourable == (int(outputs.argmax()) in chosen))
    said = decided("deployed", classes, schema)
    assert ("a tie goes to the lower class" in said) == all(alike), said
    assert ("a tie with another class is not favourable" in said) == (not all(alike))


def test_the_favourable_side_of_zero_is_named() -> None:
    person = one_hot("sex", "m", "f", protected=True)
    lower, upper = schema_of(person, positive="class = 0"), schema_of(person, positive="class = 1")
    assert decided("deployed", 1, lower) == " (favourable means logit <= 0)"
    assert decided("strict", 2, lower).startswith(" (favourable means difference of the logits < 0, unfavourable > 0; ties")
    assert decided("deployed", 1, upper) == " (positive means logit > 0)"
