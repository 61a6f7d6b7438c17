"""The causal model's file format, TOML: the causal graph, the people who are compared, and the decider.

    [[causal.node]]                                        [situation]
    name = "AnnualSalary"                                  do = { Gender = 0 }
    parents = ["Gender"]                                   attributes = ["AnnualSalary", "AccountBalance"]
    mechanism = "linear"
    range = [0, 1000000]                                   [decision]
    decimals = 2                                           column = "LoanApproval"
                                                           positive = 1
    [[causal.node]]
    name = "Gender"

`mechanism` is one of linear (the default), log-linear, categorical, forest and boosting. A linear or log-linear node is fitted
unless it has `coefficients = { Gender = -15796.351 }` and maybe `intercept` and `errors = { Gender = 820.5 }` (standard);
a parent of words takes `{ sex = { Female = -1.5 } }`, or in a fit `reference = { sex = "Male" }`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.section import TomlSection, read_section
from verifair.schema.spelling import nearest
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.checks import graph_of
from verifair.systems.cst.causal.mechanisms import Additive, Linear, LogLinear, Spec
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.settings import Name, Situation, Value
from verifair.systems.settings import Number

Mechanisms = Literal["linear", "log-linear", "categorical", "forest", "boosting"]


class NodeSection(TomlSection):
    """[[causal.node]]: see `verifair.systems.cst.causal.nodes.Node` and the mechanisms."""

    name: Name
    parents: tuple[Name, ...] = ()
    mechanism: Mechanisms = "linear"
    coefficients: dict[Name, Number | dict[Name, Number]] | None = None
    intercept: Number | None = None
    errors: dict[Name, Number | dict[Name, Number]] | None = None
    reference: dict[Name, Name] = Field(default_factory=dict)
    classifier: Literal["logistic", "forest", "boosting"] | None = None
    range: tuple[Number, Number] | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=15)] | None = None

    @classmethod
    def title(cls, data: Any) -> str:
        name = data.get("name") if isinstance(data, Mapping) else None
        return f"node {name!r}" if name else "node without a name"

    @model_validator(mode="after")
    def _fits_together(self) -> NodeSection:
        for key, reason in self._unused_keys():
            if key in self.model_fields_set:
                raise ValueError(f"{key} {reason}; drop it")
        for key, names in (("coefficients", self.coefficients or {}), ("errors", self.errors or {}), ("reference", self.reference)):
            for name in names:
                if name not in self.parents:
                    raise ValueError(f"{key} name {name!r}, which is no parent; {nearest(name, self.parents)}")
        lacking = [name for name in self.parents if self.coefficients is not None and name not in self.coefficients]
        if lacking:
            raise ValueError(f"coefficients leave out the parent {lacking[0]!r}; give each parent one, or none to have them fitted")
        return self

    def _unused_keys(self) -> list[tuple[str, str]]:
        """Return the keys that this mechanism does not use, each with the reason."""
        unused = []
        if not self.parents:
            unused += [(key, "is not used without parents") for key in NodeSection.model_fields if key not in ("name", "parents")]
        if self.mechanism != "linear":
            unused.append(("errors", f"belongs to a linear mechanism, not to a {self.mechanism} one"))
        if self.mechanism not in ("linear", "log-linear"):
            unused += [
                (key, f"does not belong to a {self.mechanism} mechanism") for key in ("coefficients", "intercept", "reference")
            ]
        if self.mechanism != "categorical":
            unused.append(("classifier", f"belongs to a categorical mechanism, not to a {self.mechanism} one"))
        else:
            unused += [(key, "does not belong to a categorical mechanism") for key in ("range", "decimals")]
        if self.coefficients is None:
            unused += [(key, "is fitted unless coefficients are given") for key in ("intercept", "errors")]
        else:
            unused.append(("reference", "is the word that the given coefficients leave out"))
        return unused

    @property
    def node(self) -> Node:
        return Node(name=self.name, parents=self.parents, mechanism=self._spec(), range=self.range, decimals=self.decimals)

    def _spec(self) -> Spec:
        match self.mechanism:
            case "linear":
                return Linear(
                    coefficients=self.coefficients, intercept=self.intercept or 0.0, reference=self.reference, errors=self.errors
                )
            case "log-linear":
                return LogLinear(coefficients=self.coefficients, intercept=self.intercept or 0.0, reference=self.reference)
            case "categorical":
                return Categorical(classifier=_classifier(self.classifier))
            case "forest":
                return Additive(function=RandomForestRegressor(min_samples_leaf=5), described="forest")
            case "boosting":
                return Additive(function=HistGradientBoostingRegressor(), described="boosting")


def _classifier(name: str | None) -> Any:
    match name:
        case "forest":
            return RandomForestClassifier(min_samples_leaf=5)
        case "boosting":
            return HistGradientBoostingClassifier()
        case _:
            return None


class Decision(TomlSection):
    """[decision]: recorded decisions (column, positive), a rule (weights, above or at_least), or a network with its schema.

    good: the class of the network that is the favourable decision; None: the schema's.
    """

    column: Name | None = None
    positive: Value | None = None
    weights: dict[Name, Number] | None = None
    above: Number | None = None
    at_least: Number | None = None
    network: Name | None = None
    network_schema: Name | None = Field(default=None, alias="schema")
    good: Literal[0, 1] | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Decision:
        if (self.column is None) != (self.positive is None):
            raise ValueError(
                "column and positive belong together: the column of decisions, and the value of it that is the good one"
            )
        if self.weights is None and (self.above is not None or self.at_least is not None):
            raise ValueError("above and at_least belong to weights = { ... }; give the weights, or drop them")
        if self.weights is not None and (self.above is None) == (self.at_least is None):
            raise ValueError("weights need one of above and at_least: the sum from which on the decision is positive")
        if (self.network is None) != (self.network_schema is None):
            raise ValueError("network and schema belong together: an ONNX file, and the TOML file that describes its inputs")
        if self.good is not None and self.network is None:
            raise ValueError("good is the class of a network that is the favourable decision; drop it, or name the network")
        if self.weights is not None and self.network is not None:
            raise ValueError("weights and network are two deciders; keep one of them")
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalFile:
    """The content of a causal file.   folder: the file's folder; paths in the file are relative to it."""

    nodes: tuple[Node, ...]
    situation: Situation
    decision: Decision
    folder: Path

    @property
    def network_path(self) -> Path | None:
        """Raises SchemaError for a path that leaves the file's folder."""
        return self._resolved("network", self.decision.network)

    @property
    def schema_path(self) -> Path | None:
        """Raises SchemaError for a path that leaves the file's folder."""
        return self._resolved("schema", self.decision.network_schema)

    def _resolved(self, key: str, name: str | None) -> Path | None:
        if name is None:
            return None
        try:
            path = (self.folder / name).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, a name too long, links in a circle
            raise SchemaError(f"[decision]: {key} = {schema_file.shown(name)}: no file can be called that; correct it") from error
        if not path.is_relative_to(self.folder.resolve()):
            raise SchemaError(
                f"[decision]: {key} = {schema_file.shown(name)} leaves the folder of the file; put the file beside it and name it "
                "from there"
            )
        return path


def load(path: str | Path) -> CausalFile:
    """Read a causal file from its path. Raises SchemaError, which names the file in each line."""
    return loads(schema_file.read(path, "a causal file"), name=str(path), folder=Path(path).parent)


def loads(text: str, *, name: str = "causal model", folder: Path | None = None) -> CausalFile:
    """Read a causal file from its text. name: of the file, for errors."""
    return build(schema_file.loaded(text, name, "a causal file"), name=name, folder=folder)


def build(content: Mapping[str, Any], *, name: str = "causal model", folder: Path | None = None) -> CausalFile:
    """Build a causal file from its content, as tomllib reads it. Raises SchemaError with all problems, one per line."""
    try:
        return _build(content, folder or Path())
    except SchemaError as error:
        raise SchemaError(schema_file.with_name(error, name)) from None


def _build(content: Mapping[str, Any], folder: Path) -> CausalFile:
    titles = ("causal", "situation", "decision")
    for title in content:
        if title not in titles:
            raise SchemaError(f"unknown section [{title}]; {nearest(title, titles)}")
    causal = content.get("causal", {})
    if not isinstance(causal, Mapping) or not isinstance(causal.get("node"), list):
        raise SchemaError("has no [[causal.node]] section; describe each variable in one, with two brackets")
    unknown = [key for key in causal if key != "node"]
    if unknown:
        raise SchemaError(f"[causal]: {unknown[0]}: unknown key; variables are described in [[causal.node]] sections")
    nodes, lines = [], []
    for index, section in enumerate(causal["node"], start=1):
        try:
            nodes.append(NodeSection.read(section).node)
        except SchemaError as error:
            lines += str(error).replace("node without a name: ", f"node number {index}: ").splitlines()
    sections: list[Any] = []
    for title, kind in (("situation", Situation), ("decision", Decision)):
        try:
            sections.append(read_section(kind, f"[{title}]", content.get(title, {})))
        except SchemaError as error:
            lines += str(error).splitlines()
    if lines:
        raise SchemaError("\n".join(lines))
    situation, decision = sections
    graph = graph_of(nodes)
    for attribute in situation.do:
        if attribute not in graph:
            raise SchemaError(f"[situation]: do names {attribute!r}, which is no node; {nearest(attribute, graph)}")
    return CausalFile(nodes=tuple(nodes), situation=situation, decision=decision, folder=folder)
