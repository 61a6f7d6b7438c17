"""PolynomialFeatures of scikit-learn as ONNX: all terms of a degree as one product, of terms of the degree below with columns.

skl2onnx writes three nodes for every term, and searches all names for each: 5,150 terms take most of a minute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from encoders.arrays import Integers

Term = tuple[int, ...]
"""The columns of a term's product, increasing."""


def write(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a fitted PolynomialFeatures to a graph: a converter for skl2onnx."""

    def add(op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or str(scope.get_unique_variable_name("terms"))
        container.add_node(op, list(inputs), name, name=scope.get_unique_operator_name(op), op_version=13, **attributes)
        return name

    def constant(kind: int, values: Any) -> str:
        name = str(scope.get_unique_variable_name("constant"))
        container.add_initializer(name, kind, [len(values)], values)
        return name

    def gather(name: str, columns: Integers) -> str:
        return add("Gather", name, constant(TensorProto.INT64, columns.tolist()), axis=1)

    all_terms = [tuple(np.repeat(np.arange(len(powers)), powers).tolist()) for powers in operator.raw_operator.powers_]
    x = add("Cast", operator.inputs[0].full_name, to=TensorProto.FLOAT)
    ones = add("Add", add("Mul", gather(x, np.zeros(1, dtype=np.int64)), constant(TensorProto.FLOAT, [0.0])),
               constant(TensorProto.FLOAT, [1.0]))
    parts, previous = [ones], dict[Term, int]()
    position: dict[Term, int] = {(): 0}
    for degree in range(1, max(map(len, all_terms)) + 1):
        terms = sorted({term[:degree] for term in all_terms if len(term) >= degree})
        product = gather(x, np.array([term[-1] for term in terms]))
        if degree > 1:
            product = add("Mul", gather(parts[-1], np.array([previous[term[:-1]] for term in terms])), product)
        previous = {term: k for k, term in enumerate(terms)}
        position |= {term: len(position) + k for k, term in enumerate(terms)}
        parts.append(product)
    order = constant(TensorProto.INT64, [position[term] for term in all_terms])
    add("Gather", add("Concat", *parts, axis=1), order, output=operator.outputs[0].full_name, axis=1)
