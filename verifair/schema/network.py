"""The check that a schema fits a network's inputs: their number, and for a pipeline the kind and categories of every column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from encoders.domain import Domain
from encoders.model import NO_COLUMN, Feed, Link, Model
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
    problems = _table_problems(features, domain, network.feeds)
    declared = domain.columns - sum(feature.dropped is not None for feature in features)
    inputs = sum(feed.columns for feed in network.feeds) if network.feeds and declared < domain.columns else network.inputs
    if network.inputs != domain.columns or (network.feeds and inputs != declared):
        width = {f.name: len(block) for f in features if (block := block_of(f))}
        blocks = ", ".join(f"{name} {count}" for name, count in width.items())
        droppable = inputs < declared <= inputs + sum(f.name in width and f.dropped is None for f in features)
        raise SchemaError(
            f"the schema describes {declared} input columns ({len(features)} features"
            + (f"; one-hot blocks: {blocks}" if blocks else "")
            + f"), but the network takes {inputs}{_columns(network.feeds)}; describe every column, in the network's order"
            + ', and write dropped = "CATEGORY" of a one-hot feature without a column for its first category' * droppable
            + "".join(f"\n{problem}" for problem in problems)
        )
    if problems:
        raise SchemaError("\n".join(problems))
    if outcome.of != "class" and network.outputs != 1:
        kind = "a network with one logit" if outcome.of == "logit" else "a model with one output"
        raise SchemaError(f'positive = "{outcome}" needs {kind}, this one has {network.outputs}; write positive = "class = 1"')
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
    favourable, remedy = names[good], '"class = 0"' if good else '"logit > 0"' if network.outputs == 1 else '"class = 1"'
    return (
        f"the network's classes are {', '.join(names)}, in this order, and the favourable one is said to be "
        f"{'the second' if good else 'the first'}, {favourable!r}; write positive = {remedy}, or choose {favourable!r}"
    )


def _columns(feeds: Sequence[Feed]) -> str:
    """Return the columns of a model that takes a table, for a message."""
    if len(feeds) < 2 and not any(feed.categories for feed in feeds):
        return ""
    parts = []
    for feed in feeds:
        blocks = [f"one-hot with {len(categories)} categories" for _, categories in sorted(feed.categories.items())]
        numbers = feed.columns - sum(len(categories) for categories in feed.categories.values())
        kind = "integer" if feed.kind in WHOLE else "number"
        number_texts = [f"{numbers} {kind}{'s' * (numbers > 1)}"] if numbers else []
        parts.append(f"{feed.name}: " + (", ".join([*number_texts, *blocks]) or "not read"))
    return f" ({'; '.join(parts)})"


def _table_problems(features: Sequence[Feature], domain: Domain, feeds: Sequence[Feed]) -> list[str]:
    """Return the problems with a model that takes typed columns or encodes categories itself."""
    feature_at = {int(start): feature for start, feature in zip(domain.start, features, strict=True)}
    problems = []
    for feed in feeds:
        for position, start in enumerate(feed.start.tolist()):
            if start < 0:
                continue
            feature, categories = feature_at.get(start), feed.categories.get(position)
            place = f"the model's input {feed.name!r}" + (f", column {position}," if len(feed.start) > 1 else "")
            if categories is not None:
                problem = _block_problem(feature, tuple(text(value) for value in categories), place)
            elif feature is not None and feed.kind in WHOLE:
                problem = _beyond_float32(feature, place, "integers") or _integer_problem(feature, place)
            elif feature is not None and feed.kind == "float64":
                problem = _beyond_float32(feature, place, "numbers of 64 bits")
            else:
                problem = None
            problems += [problem] if problem else []
    return problems or _order_problems(features, domain, feeds)


def _block_problem(feature: Feature | None, categories: tuple[str, ...], place: str) -> str | None:
    names = "[" + ", ".join(f'"{name}"' for name in categories) + "]"
    if feature is None or feature.kind != "one-hot":
        reason = "no feature begins there" if feature is None else f"feature {feature.name!r} is {feature.kind}"
        return f'{place} is encoded by the model: {reason}; there it needs a feature with kind = "one-hot" and categories = {names}'
    spellings = categories, tuple(TRUTHS.get(name, name) for name in categories)
    with_missing = [tuple(feature.missing if name == word else name for name in names) for names in spellings for word in MISSING]
    if feature.categories not in (*spellings, *with_missing):
        return f"feature {feature.name!r}: {place} has the categories {names}; list these, in this order, and no others"
    return None


def _beyond_float32(feature: Feature, place: str, inputs: str) -> str | None:
    """Return the problem of whole numbers that the model distinguishes and float32 does not, or None."""
    if feature.kind != "integer" or feature.range is None:
        return None
    if max(abs(end - feature.affine[0]) for end in feature.range) <= WHOLE_IN_FLOAT32:
        return None
    return (
        f"feature {feature.name!r} has range = [{feature.range[0]:,.0f}, {feature.range[1]:,.0f}], but {place} takes {inputs}, and "
        f"proofs are about float32 inputs, which miss whole numbers beyond 2^24 = {WHOLE_IN_FLOAT32:,}; narrow the range, or count "
        "in a larger unit"
    )


def _integer_problem(feature: Feature, place: str) -> str | None:
    if feature.kind in ("categorical", "one-hot") or (feature.kind == "integer" and feature.affine == (0.0, 1.0)):
        return None
    reason = f"kind = {feature.kind!r}" if feature.kind != "integer" else "a scale"
    remedy = 'write kind = "integer" and leave the scale to the model'
    return f"feature {feature.name!r} has {reason}, but {place} takes integers; {remedy}"


def _order_problems(features: Sequence[Feature], domain: Domain, feeds: Sequence[Feed]) -> list[str]:
    """Return features that have the name of an input of the model, but stand in the place of another one."""
    if len(feeds) < 2:
        return []
    starts = {exported(feed.name): int(feed.start[0]) for feed in feeds if len(feed.start) == 1}
    for feature, start in zip(features, domain.start.tolist(), strict=True):
        if any(starts.get(exported(name), start) not in (start, NO_COLUMN) for name in (feature.name, feature.source)):
            order = ", ".join(feed.name for feed in feeds if feed.columns)
            return [f"feature {feature.name!r} stands in the place of another input of the model; the model's order is {order}"]
    return []
