"""Words for the statements of files of proofs: the parts that sentences of several kinds share."""

from __future__ import annotations

from collections.abc import Mapping

from encoders.model import Link, Model
from verifair.checker.certificates.statement import Scale, Signs
from verifair.schema.space import InputSpace


def counted(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun: "1 proof", "2,000 proofs"."""
    return f"{number:,} {singular if number == 1 else plural}"


def near(relax: Mapping[str, int], schema: InputSpace) -> str:
    """Return by how much relaxed features may differ as well: "age by up to 5, housing to any category"."""
    sizes = {feature.name: len(feature.categories or ()) for feature in schema.features}
    any_of = {name for name, width in relax.items() if 0 < sizes.get(name, 0) <= width + 1}
    return ", ".join(f"{name} to any category" if name in any_of else f"{name} by up to {width}" for name, width in relax.items())


def moving(scale: Scale, network: Model, schema: InputSpace) -> str:
    """Return the quantity that a gap is about with its verb, such as "probability moves"."""
    if scale == "probability" or network.link is Link.SHARES:
        return "probability moves"
    return "value moves" if schema.outcome.of == "value" else "log-odds move"


def decided(signs: Signs | None, model: Model, schema: InputSpace, any_two: bool = False) -> str:
    """Return the rule for positive decisions of a statement about flips, in brackets; nothing for one about probabilities.

    any_two: flips between any two of several classes are meant.
    """
    if signs is None:
        return ""
    outcome, outputs = schema.outcome, model.whole.outputs
    if any_two and outputs > 2:
        return f" between any of {outputs} classes (the largest output decides, a tie goes to the lower class)"
    if outcome.of != "class" and not outcome.plain:
        ties = "" if signs == "deployed" else f"; exactly {outcome.number} counts on neither side"
        return f" (favourable means {outcome}{ties})"
    if outputs > 2:
        by_argmax = outcome.one_sided(outputs) or model.whole.of_trees
        ties = "a tie goes to the lower class" if by_argmax else "a tie with another class is not favourable"
        ties = ties if signs == "deployed" else "ties count on neither side"
        return f" (favourable means {schema.positive}, by the largest output; {ties})"
    logit = "logit" if outputs == 1 else "difference of the logits"
    if not outcome.good:
        rule = "<= 0" if signs == "deployed" else "< 0, unfavourable > 0; ties count on neither side"
        return f" (favourable means {logit} {rule})"
    ties = "" if signs == "deployed" else ", negative < 0; ties count on neither side"
    return f" (positive means {logit} > 0{ties})"


def float32_words(certified: int, proofs: int) -> str:
    """Return a sentence on how many proofs hold for float32 too: "7,741 of 7,742 proofs hold for float32 too, ..."."""
    if proofs == 1:
        claim = "The proof holds for float32 too, in any order of summation" if certified else "The proof"
        return claim if certified else f"{claim} is about the real-valued function only, not about float32"
    share = f"{certified:,} of {proofs:,}" if certified < proofs else f"All {proofs:,}"
    rest = proofs - certified
    if not certified:
        return f"None of {proofs:,} proofs is certified for float32: they are about the real-valued function only"
    remainder = f"; the other{' is' if rest == 1 else 's are'} about the real-valued function only" if rest else ""
    return f"{share} proofs hold for float32 too, in any order of summation{remainder}"


def where(box: Mapping[str, tuple[float, float]], schema: InputSpace) -> str:
    """Return the place where a statement holds: the ranges of the features that its box narrows."""
    ranges = []
    for feature, lower, upper in zip(schema.features, schema.domain.lower, schema.domain.upper, strict=True):
        low, high = box.get(feature.name, (lower, upper))
        if (low, high) != (lower, upper):
            ends = [exactly(end) if feature.numeric else category(schema, feature.name, end) for end in (low, high)]
            ranges.append(f"{feature.name} = {' .. '.join(dict.fromkeys(ends))}")
    return f"where {', '.join(ranges)}" if ranges else "in the whole domain"


def exactly(value: float) -> str:
    """Return a number with all its digits: a rounded one would be another statement."""
    return f"{int(value)}" if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def category(schema: InputSpace, name: str, value: float) -> str:
    """Return a category's name, or the number if the schema has no such category."""
    values = set(schema.values(name).tolist())
    return schema.format(name, value) if value in values else exactly(value)
