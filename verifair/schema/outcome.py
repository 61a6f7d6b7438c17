"""The favourable decision, as a schema's `positive` writes it.

    logit > t, logit >= t, logit < t, logit <= t     of a network with one logit
    value > t, ...                                   of a model that gives a value: a score, a price
    class = approved, class = 1                      a class by its name or its number, the first one being 0
    class >= 2, class > low, class <= 1, class < 1   ordered classes from one on, or up to one
    class in [1, 2], class in [low, middle]          several classes

t is a number of 64 bits. A whole number is a class's position in the model's outputs, even if the name of a class is a number;
names are those of the schema's `classes`, or else those that the stored classifier gives its classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Booleans, Integers
from encoders.decision import Decision, Favoured, Threshold
from encoders.model import Link, Model
from verifair.errors import SchemaError

COMPARED = re.compile(r"(logit|value)\s*(>=|<=|>|<)\s*([^\s<>=]+)")
CLASS = re.compile(r"class\s*(>=|<=|>|<|=)\s*([^<>=].*)")
LISTED = re.compile(r"class\s+in\s*\[(.+)\]")
COMPARISONS = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
EXPECTED = ('expected "logit > 0" or another threshold, "value >= 600" of a model that gives values, "class = 1" or '
            '"class = NAME", "class >= 2" of ordered classes, or "class in [1, 2]"')


@dataclass(frozen=True, kw_only=True)
class PositiveRule:
    """of: "logit", "value" or "class".   operator: a comparison, or "in".   at: the threshold.   named: classes, as written."""

    of: str
    operator: str
    at: float = 0.0
    named: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PositiveRule:
        """Return the rule in a text. Raises SchemaError."""
        stripped = text.strip()
        if (match := COMPARED.fullmatch(stripped)) is not None:
            try:
                threshold = float(match[3])
            except ValueError:
                threshold = np.nan
            if not np.isfinite(threshold):
                raise SchemaError(f"positive = {text!r}: {match[3]} is no number; {EXPECTED}")
            return cls(of=match[1], operator=match[2], at=threshold + 0.0)  # no negative zero
        if (match := LISTED.fullmatch(stripped)) is not None:
            names = tuple(name.strip() for name in match[1].split(","))
            if len(set(names)) < len(names) or "" in names:
                raise SchemaError(f"positive = {text!r}: a class is missing, or named twice; {EXPECTED}")
            return cls(of="class", operator="in", named=names)
        if (match := CLASS.fullmatch(stripped)) is not None:
            return cls(of="class", operator=match[1], named=(match[2].strip(),))
        raise SchemaError(f"positive = {text!r}: {EXPECTED}")

    def __str__(self) -> str:
        """Return the text that `parse` reads, the same for equal outcomes."""
        if self.of != "class":
            return f"{self.of} {self.operator} {self.number}"
        return f"class in [{', '.join(self.named)}]" if self.operator == "in" else f"class {self.operator} {self.named[0]}"

    @property
    def number(self) -> str:
        """The threshold with all its digits."""
        return f"{int(self.at)}" if self.at.is_integer() and abs(self.at) < 1e15 else repr(self.at)

    @property
    def good(self) -> int:
        """The favourable one of the two decisions: 1 if it is a margin above 0, 0 if it is a margin of at most 0.

        The lower class wins ties, so thresholds that include their end, and classes up to one, are margins of at most 0. Names must
        be numbers by now (`numbered`).
        """
        if self.of != "class":
            return int(self.operator in (">", "<"))
        lowest = sorted(map(int, self.named)) == list(range(len(self.named)))
        return int(self.operator in (">", ">=") or (self.operator in ("=", "in") and not lowest))

    @property
    def unnumbered(self) -> bool:
        """True if a class is given by its name."""
        return not all(name.isdecimal() for name in self.named)

    @property
    def plain(self) -> bool:
        """True if the model's logits already are the decision: class 0 or 1 of two, or one logit above 0."""
        return self.of == "logit" and self.at == 0 and self.operator in (">", "<=")

    def numbered(self, names: Sequence[str]) -> PositiveRule:
        """Return the same with the classes' numbers for their names. Raises SchemaError for a name that is unknown."""
        numbers = []
        for name in self.named:
            if name.isdecimal():
                numbers.append(int(name))
            elif name in names:
                numbers.append(list(names).index(name))
            elif names:
                remedy = "; write the name without quotation marks" if name.strip("\"'") in names else ""
                raise SchemaError(f'positive = "{self}": no class {name}; known: {", ".join(names)}{remedy}')
            else:
                remedy = 'write classes = ["...", "..."] into [model], in the order of its outputs, or positive = "class = 0"'
                raise SchemaError(f'positive = "{self}": the model does not name its classes; {remedy}')
        ordered = sorted(numbers) if self.operator == "in" else numbers
        return PositiveRule(of=self.of, operator=self.operator, at=self.at, named=tuple(map(str, ordered)))

    def favoured(self, classes: int) -> tuple[int, ...]:
        """Return the favourable ones of so many classes; names must be numbers by now. Raises SchemaError for none, or all."""
        numbers = [int(name) for name in self.named]
        ranges = {"=": (numbers[0], numbers[0] + 1), ">=": (numbers[0], classes), ">": (numbers[0] + 1, classes),
                  "<=": (0, numbers[0] + 1), "<": (0, numbers[0])}  # fmt: skip
        favourable = tuple(sorted(set(numbers))) if self.operator == "in" else tuple(range(*ranges[self.operator]))
        if max(numbers) >= classes or not 0 < len(favourable) < classes:
            raise SchemaError(f'positive = "{self}": expected some of the model\'s classes 0 to {classes - 1}, and not all')
        return favourable

    def one_sided(self, classes: int) -> bool:
        """Return True if the highest, or the lowest, of so many classes are favourable."""
        return not self.good or (chosen := self.favoured(classes))[0] == classes - len(chosen)

    def favourable(self, classes: Integers) -> Booleans:
        """Return (N,) True for favourable ones of classes (N,) of the model as it was read."""
        if self.of != "class":
            return np.asarray(classes == self.good)
        numbers, compared = list(map(int, self.named)), COMPARISONS.get(self.operator)
        return np.asarray(np.isin(classes, numbers) if compared is None else compared(classes, numbers[0]))

    def reached(self, values: np.ndarray) -> Booleans:
        """Return (N,) True for true values that are favourable by the threshold."""
        return np.asarray(COMPARISONS[self.operator](values, self.at))

    def fitting(self, model: Model) -> Model:
        """Return the model as it was read. Raises SchemaError if the rule is about logits, and it seems to output none."""
        if model.whole.doubt and self.of != "value":
            raise SchemaError(f'positive = "{self}": the model {model.whole.doubt}')
        return model.whole

    def read(self, model: Model) -> Threshold | None:
        """Return the threshold for the decision on the model's only output; None if its logit is the margin. Raises SchemaError."""
        whole = self.fitting(model)
        if self.of == "class" or self.plain:
            return None
        if whole.outputs > 1:
            raise SchemaError(f'positive = "{self}" needs a model with one output, this one has {whole.outputs}; write "class = 1"')
        if self.of == "value" and whole.link is not Link.IDENTITY:
            quantity = "the probability less 1/2" if whole.link is Link.SHARES else "the log-odds of the probability"
            text = f'the model gives probabilities, and decisions are about its logit; write positive = "logit {self.operator} T"'
            raise SchemaError(f'positive = "{self}": {text}, T for {quantity}')
        return Threshold(at=self.at, below=self.operator in ("<", ">="))

    @staticmethod
    def compared(model: Model) -> Decision | None:
        """Return the decision with margins of "class k or a higher one", k = 1, 2, ..., of several classes; None for two."""
        count = model.whole.outputs
        return Favoured(groups=tuple(tuple(range(k, count)) for k in range(1, count))) if count > 2 else None

    def judged(self, model: Model, *, odds: bool) -> Decision | None:
        """Return the decision with one margin of several classes, above 0 for decision 1; None if the outputs need none.

        odds: the log-odds of decision 1, whose probability is asked about.   Raises SchemaError.
        """
        whole = self.fitting(model)
        if self.of == "class" and whole.outputs > 2:
            favourable = self.favoured(whole.outputs)
            group = favourable if self.good else tuple(k for k in range(whole.outputs) if k not in favourable)
            lowest = whole.of_trees and not odds and not self.one_sided(whole.outputs)
            return Favoured(groups=(group,), odds=odds, votes=whole.link is Link.SHARES, lowest=lowest)
        if odds and self.of == "value":
            remedy = "ask how far the value itself moves (certify --epsilon, --maximise), or whether decisions flip"
            raise SchemaError(f'positive = "{self}": the model gives values, which have no probabilities; {remedy}')
        return None if odds else self.read(model)

