"""The check that a schema fits a network's inputs: their number, and for a pipeline the kind and categories of every column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from encoders.domain import Domain
from encoders.network import NO_COLUMN, Feed, Link, Model
from encoders.onnx.feed import WHOLE
from verifair.errors import SchemaError
from verifair.models.objects import exported
from verifair.schema.feature import Feature, text
from verifair.schema.outcome import PositiveRule
from verifair.schema.rows import MISSING, block_of

WHOLE_IN_FLOAT32 = 2**24
"""Every whole number up to this size, of either sign, is a float32."""
TRUTHS = {"0": "False", "1": "True"}
"""Categories of an encoder of truth values, in ONNX -> in a table."""


def check(
    features: Sequence[Feature], domain: Domain, outcome: PositiveRule, positive_label: str | None, network: Model
) -> None:
    """Raise SchemaError unless the features' columns and the outcome fit the network."""
    problems = _of_table(features, domain, network.feeds)
    takes = domain.columns - sum(one.dropped is not None for one in features)
    own = sum(feed.columns for feed in network.feeds) if network.feeds and takes < domain.columns else network.inputs
    if network.inputs != domain.columns or (network.feeds and own != takes):
        width = {f.name: len(block) for f in features if (block := block_of(f))}
        blocks = ", ".join(f"{name} {count}" for name, count in width.items())
        short = own < takes <= own + sum(f.name in width and f.dropped is None for f in features)
        raise SchemaError(
            f"the schema describes {takes} input columns ({len(features)} features"
            + (f"; one-hot blocks: {blocks}" if blocks else "")
            + f"), but the network takes {own}{_columns(network.feeds)}; describe every column, in the network's order"
            + ', and write dropped = "CATEGORY" of a one-hot feature without a column for its first category' * short
            + "".join(f"\n{problem}" for problem in problems)
        )
    if problems:
        raise SchemaError("\n".join(problems))
    if outcome.of != "class" and network.outputs != 1:
        needs = "a network with one logit" if outcome.of == "logit" else "a model with one output"
        raise SchemaError(f'positive = "{outcome}" needs {needs}, this one has {network.outputs}; write positive = "class = 1"')
    if outcome.of == "class":
        outcome.favoured(max(2, network.outputs))
    check_threshold(outcome, network)
    flaw = other_class(network, positive_label, int(upwards(outcome)))
    if flaw is not None:
        raise SchemaError(f"positive_label = {positive_label!r}: {flaw}")


def check_threshold(outcome: PositiveRule, network: Model) -> None:
    """Raise SchemaError for a threshold that does not apply to this model."""
    outcome.read(network)
    if outcome.of == "logit" and network.link is Link.SHARES and abs(outcome.at) > 0.5:
        raise SchemaError(
            f'positive = "{outcome}": the logit of this model is the probability of the second class, a share of votes or a mean, '
            f'less 1/2; write positive = "logit {outcome.operator} T" with that, between -0.5 and 0.5'
        )


def upwards(outcome: PositiveRule) -> bool:
    """Return True if larger outputs are favourable: values above a threshold, or the second of two classes (by its number)."""
    return bool(outcome.good) if outcome.of == "class" else outcome.operator in (">", ">=")


def classes_called(network: Model, labels: Iterable[str]) -> tuple[str, ...]:
    """Return a stored classifier's class names as a label column has them: converters write 0 and 1 for truth values."""
    truths = tuple(TRUTHS.get(name, name) for name in network.classes)
    return truths if set(labels) & set(truths) - set(network.classes) else network.classes


def other_class(network: Model, label: str | None, good: int) -> str | None:
    """Return why a label is not the name of the network's class `good`, if a stored classifier names its classes."""
    if label is not None and network.outputs > 2:
        names = network.classes or [f"class {k}" for k in range(network.outputs)]
        return (
            f"it tells two classes apart, and the network has {network.outputs}; give the label column their names or numbers "
            f"({', '.join(f'{k} for {name}' for k, name in enumerate(names))}), say which are favourable with positive = "
            '"class = ...", and leave positive_label out'
        )
    if label is None or label not in (names := classes_called(network, [label])) or names.index(label) == good:
        return None
    asked, other = names[good], '"class = 0"' if good else '"logit > 0"' if network.outputs == 1 else '"class = 1"'
    return (
        f"the network's classes are {', '.join(names)}, in this order, and the favourable one is said to be "
        f"{'the second' if good else 'the first'}, {asked!r}; write positive = {other}, or choose {asked!r}"
    )


def _columns(feeds: Sequence[Feed]) -> str:
    """Return the columns of a model that takes a table, for a message."""
    if len(feeds) < 2 and not any(feed.categories for feed in feeds):
        return ""
    parts = []
    for feed in feeds:
        blocks = [f"one-hot with {len(known)} categories" for _, known in sorted(feed.categories.items())]
        numbers = feed.columns - sum(len(known) for known in feed.categories.values())
        kind = "integer" if feed.kind in WHOLE else "number"
        counted = [f"{numbers} {kind}{'s' * (numbers > 1)}"] if numbers else []
        parts.append(f"{feed.name}: " + (", ".join([*counted, *blocks]) or "not read"))
    return f" ({'; '.join(parts)})"


def _of_table(features: Sequence[Feature], domain: Domain, feeds: Sequence[Feed]) -> list[str]:
    """Return the problems with a model that takes typed columns or encodes categories itself."""
    at = {int(start): feature for start, feature in zip(domain.start, features, strict=True)}
    problems = []
    for feed in feeds:
        for position, start in enumerate(feed.start.tolist()):
            if start < 0:
                continue
            feature, known = at.get(start), feed.categories.get(position)
            where = f"the model's input {feed.name!r}" + (f", column {position}," if len(feed.start) > 1 else "")
            if known is not None:
                problem = _of_block(feature, tuple(text(value) for value in known), where)
            elif feature is not None and feed.kind in WHOLE:
                problem = _beyond_float32(feature, where, "integers") or _of_integer(feature, where)
            elif feature is not None and feed.kind == "float64":
                problem = _beyond_float32(feature, where, "numbers of 64 bits")
            else:
                problem = None
            problems += [problem] if problem else []
    return problems or _order(features, domain, feeds)


def _of_block(feature: Feature | None, known: tuple[str, ...], where: str) -> str | None:
    listed = "[" + ", ".join(f'"{name}"' for name in known) + "]"
    if feature is None or feature.kind != "one-hot":
        found = "no feature begins there" if feature is None else f"feature {feature.name!r} is {feature.kind}"
        return f'{where} is encoded by the model: {found}; there it needs a feature with kind = "one-hot" and categories = {listed}'
    spelled = known, tuple(TRUTHS.get(one, one) for one in known)
    named = [tuple(feature.missing if one == word else one for one in names) for names in spelled for word in MISSING]
    if feature.categories not in (*spelled, *named):
        return f"feature {feature.name!r}: {where} has the categories {listed}; list these, in this order, and no others"
    return None


def _beyond_float32(feature: Feature, where: str, takes: str) -> str | None:
    """Return the problem of whole numbers that the model distinguishes and float32 does not, or None."""
    if feature.kind != "integer" or feature.range is None:
        return None
    if max(abs(end - feature.affine[0]) for end in feature.range) <= WHOLE_IN_FLOAT32:
        return None
    return (
        f"feature {feature.name!r} has range = [{feature.range[0]:,.0f}, {feature.range[1]:,.0f}], but {where} takes {takes}, and "
        f"proofs are about float32 inputs, which miss whole numbers beyond 2^24 = {WHOLE_IN_FLOAT32:,}; narrow the range, or count "
        "in a larger unit"
    )


def _of_integer(feature: Feature, where: str) -> str | None:
    if feature.kind in ("categorical", "one-hot") or (feature.kind == "integer" and feature.affine == (0.0, 1.0)):
        return None
    found = f"kind = {feature.kind!r}" if feature.kind != "integer" else "a scale"
    remedy = 'write kind = "integer" and leave the scale to the model'
    return f"feature {feature.name!r} has {found}, but {where} takes integers; {remedy}"


def _order(features: Sequence[Feature], domain: Domain, feeds: Sequence[Feed]) -> list[str]:
    """Return features that have the name of an input of the model, but stand in the place of another one."""
    if len(feeds) < 2:
        return []
    place = {exported(feed.name): int(feed.start[0]) for feed in feeds if len(feed.start) == 1}
    for feature, start in zip(features, domain.start.tolist(), strict=True):
        if any(place.get(exported(name), start) not in (start, NO_COLUMN) for name in (feature.name, feature.source)):
            order = ", ".join(feed.name for feed in feeds if feed.columns)
            return [f"feature {feature.name!r} stands in the place of another input of the model; the model's order is {order}"]
    return []
