"""Numbers, people, shares and counterexamples in words: the same on the screen, in files and on the page."""

from __future__ import annotations

import decimal
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from encoders.model import Model
from verifair.checker.words import counted
from verifair.engine.verdict import Witness
from verifair.schema.feature import Feature
from verifair.schema.naming import assigned
from verifair.schema.schema import Schema
from verifair.systems.results.findings import Standing, WitnessRow
from verifair.systems.results.verdicts import WitnessShape

DRAWN = "drawn at random"
"""Said of rows that an analysis asked of, in place of all."""


def value_words(schema: Schema, name: str, value: Any) -> str:
    """Return a value with its unit: "34 years", "3,500 DM"; a category by its name."""
    feature = schema[name]
    if not feature.numeric:
        return str(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return number + _unit(feature, value)


def name_words(name: str) -> str:
    """Return a feature's name for reading: "capital_gain" as "capital gain"."""
    return name.replace("_", " ").strip() or name


def _unit(feature: Feature, number: float) -> str:
    """Return the unit after a number, with a space; the plural in schemas loses its s after 1: " months", but " month"."""
    unit = feature.unit_name or ""
    if number == 1 and len(unit) > 2 and unit.endswith("s") and not unit.endswith(("ss", "us", "is")):
        unit = unit[:-1]
    return f" {unit}" if unit else ""


def of(part: int, whole: int) -> str:
    """Return a count out of another with its share: "312 of 1,000 (31.2%)"."""
    return f"{part:,} of {whole:,} ({percent(part / whole if whole else 0.0)})"


def model_words(model: Model) -> str:
    """Return a model in words: "a network of 56-16-8-1 neurons", "an ensemble of 100 trees"."""
    if model.of_trees:
        return f"an ensemble of {counted(model.asking, 'tree', 'trees')}"
    return f"a network of {'-'.join(map(str, (model.inputs, *model.hidden, model.outputs)))} neurons"


def drawn(part: int, whole: str, seed: int) -> str:
    """Return the drawn rows in words: "1,000 of the table's 7,214 rows, drawn at random (seed 0)"."""
    return f"{part:,} of {whole}, {DRAWN} (seed {seed})"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def units(delta: float) -> str:
    return f"{delta:g} unit{'' if delta == 1 else 's'}"


def moves(schema: Schema, fixed: Sequence[str]) -> str:
    """Return the move of one unit of delta in words: "duration by 1 month, credit-amount by 100 DM", or "nothing"."""
    steps = zip(schema.features, schema.steps(fixed, needed=False), strict=True)
    return ", ".join(f"{name_words(f.name)} by {step:g}{_unit(f, step)}" for f, step in steps if step) or "nothing"


def firmly(standing: Standing) -> str:
    """Return the first word of a sentence that has a certificate: Proved, or Claimed."""
    return "Proved" if standing is Standing.PROVED else "Claimed, not confirmed by the separate checker"


def witness_row(analysis: str, schema: Schema, witness: Witness | WitnessShape, *, person: str = "A person") -> WitnessRow:
    """Return a counterexample of a fairness query for the page.   person: the person's name in the sentence."""
    shared = {name: value_words(schema, name, value) for name, value in witness.x.items() if witness.x_prime[name] == value}
    changes = {
        name: (value_words(schema, name, value), value_words(schema, name, witness.x_prime[name]))
        for name, value in witness.x.items() if witness.x_prime[name] != value
    }  # fmt: skip
    first, second = witness.decisions
    return WitnessRow(
        analysis=analysis, person=shared, changes=changes, before=witness.shown[0], after=witness.shown[1],
        flips=first != second, float32_agrees=witness.float32_agrees,
        sentence=sentence(schema, person, shared, changes, witness.shown, (first, second)), x=dict(witness.x),
    )  # fmt: skip


FACTS = 4
"""Features of a person that a sentence names."""


def sentence(
    schema: Schema, person: str, shared: Mapping[str, str], changes: Mapping[str, tuple[str, str]], shown: Sequence[float],
    decisions: Sequence[str],
) -> str:  # fmt: skip
    """ 'A person (age 34 years, …), sex Male: decision "bad", probability of "good" 0.31. The same person, sex Female: …' """
    facts = [f"{name_words(name)} {value}" for name, value in shared.items()]
    person_words = f" ({', '.join([*facts[:FACTS], *(['…'] if len(facts) > FACTS else [])])})" if facts else ""
    before, after = (f"{p:.2f}" for p in shown)
    if before == after:
        before, after = (f"{p:.6g}" for p in shown)
    if not changes:
        return f'{person}{person_words}: decision "{decisions[0]}", {schema.quantity} {before}.'
    before_words, after_words = (listed([f"{name_words(name)} {ends[side]}" for name, ends in changes.items()]) for side in (0, 1))
    decision = "the same decision" if decisions[0] == decisions[1] else f'decision "{decisions[1]}"'
    first = f'{person}{person_words}, {before_words}: decision "{decisions[0]}", {schema.quantity} {before}.'
    return f"{first} The same person, {after_words}: {decision}, {after}."


def cell(value: float | None, form: str = ".3g") -> str:
    """Return a number of a table as text, a dash if there is none."""
    return "-" if value is None or value != value else format(value, form)


def short(value: float | None) -> str:
    """Return a number of any size with three digits, from 1000 on all of its whole digits: "0.0123", "1,809"; a dash for none."""
    return cell(value, ",.0f" if value is not None and 999.5 <= abs(value) < 1e15 else ".3g")


def percent(share: float | None) -> str:
    """Return a share in percent; never 0 % or 100 % unless it is exactly that; a dash for no share."""
    if share is None or share != share:
        return "-"
    if 0 < share < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.1f}%"


def two_digits(share: float) -> str:
    """Return a share in percent with two digits however small it is; 100 % only if it is exactly 1."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %" if share == 1 else ">99 %"


def rounded(value: float, *, up: bool, digits: int = 5) -> str:
    """Return a bound with `digits` decimals: rounded up, or down, from the float64 as it is written (0.1, which is a little more
    than 1/10, is 0.1)."""
    if abs(value) == float("inf"):
        return "infinity"
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    decimal_value = decimal.Decimal(str(float(value)))
    return str(decimal_value.quantize(decimal.Decimal(1).scaleb(-digits), rounding=rounding, context=decimal.Context(prec=60)))


def box_options(box: Mapping[str, Any]) -> str:
    """Return the box as options of the command line."""
    parts = []
    for name, value in box.items():
        ends = value if isinstance(value, (tuple, list)) else (value,)
        parts.append("--box " + shlex.quote(assigned(name, ":".join(map(str, ends)))))
    return " ".join(parts)
