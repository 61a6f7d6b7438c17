"""A twin query as VNN-LIB text: 2.0 with two networks, the second `equal-to` the first; 1.0 over the product network.

Both say, in the network's own columns,

    x in [lower, upper],   x' = x but for its own values and its shifts,   every row over (g(x), g(x')) above its constant,

so that `sat` is a counterexample and `unsat` a proof. Version 2.0 has strict signs and writes `>`, or `>=` where equality counts.
Version 1.0 (the subset of SMT-LIB that VNN-COMP has used since 2021) has none: it writes `>=` everywhere, the closure, which can
turn an unsat into a sat, but never the reverse.
Numbers are written as the exact decimals of the floats that they are: 2.0 has no exponents, and a bound rounded inwards would
take the boundary out of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from encoders.arrays import Array, Booleans, Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinQuery:
    """A query about two copies, in network columns.

    lower, upper: (n,) box of x.   own, own_value: (k,) columns in which x' has values of its own, and these values.
    shift, shift_value: (s,) columns in which x' is x plus a constant.   margin: (n_N,) g = margin . logits.
    rows (R, 2), constants, closed (R,): a pair is sought with  rows @ (g, g') > constants  throughout, >= where `closed`.
    blocks: columns of one-hot blocks that are left open, each to sum up to 1.
    """

    lower: Array
    upper: Array
    own: Integers
    own_value: Array
    shift: Integers
    shift_value: Array
    margin: Array
    rows: Array
    constants: Array
    closed: Booleans
    blocks: Sequence[Integers] = ()


def decimal(value: float) -> str:
    """Return the exact decimal of a finite float, with a point and no exponent: 2.0 types a number without one as an integer."""
    if not np.isfinite(value):
        raise ValueError(f"{value} has no decimal")
    text = f"{Decimal(float(value) + 0.0):f}"  # no -0.0
    return text if "." in text else f"{text}.0"


def version_1(query: TwinQuery, outputs: Sequence[tuple[int, bool, float]], count: int, comments: Sequence[str]) -> str:
    """Return the property of a product network whose `count` outputs are rows over both margins.

    outputs: (position, whether it must be high, bound) of the constrained ones: Y >= bound, or Y <= bound.
    """
    lower = np.concatenate([query.lower, query.own_value, query.shift_value])
    upper = np.concatenate([query.upper, query.own_value, query.shift_value])
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))] + [f"(declare-const Y_{i} Real)" for i in range(count)]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{i} {decimal(low)}))", f"(assert (<= X_{i} {decimal(high)}))"]
    lines += [f"(assert ({'>=' if high else '<='} Y_{i} {decimal(bound)}))" for i, high, bound in outputs]
    return _text(comments, lines)


def version_2(query: TwinQuery, comments: Sequence[str]) -> str:
    """Two networks f and g, g equal to f."""
    n, m = len(query.lower), len(query.margin)
    lines = ["(vnnlib-version <2.0>)"]
    for name, equal in (("f", ""), ("g", "\n    (equal-to f)")):
        lines.append(
            f"(declare-network {name}{equal}\n    (declare-input X_{name} real [1,{n}])\n"
            f"    (declare-output Y_{name} real [1,{m}])\n)"
        )
    for i, (low, high) in enumerate(zip(query.lower, query.upper, strict=True)):
        x = f"X_f[0,{i}]"
        if low == high:
            lines.append(f"(assert (== {x} {decimal(low)}))")
        else:
            lines.append(f"(assert (and (>= {x} {decimal(low)}) (<= {x} {decimal(high)})))")
    lines += [f"(assert (== (+ {' '.join(f'X_f[0,{i}]' for i in block)}) 1.0))" for block in query.blocks]
    second = {int(i): f"X_f[0,{i}]" for i in range(n)}
    second |= {int(i): decimal(value) for i, value in zip(query.own, query.own_value, strict=True)}
    second |= {int(i): f"(+ X_f[0,{i}] {decimal(shift)})" for i, shift in zip(query.shift, query.shift_value, strict=True) if shift}
    lines += [f"(assert (== X_g[0,{i}] {value}))" for i, value in sorted(second.items())]
    lines += [f"(assert {_above(query, *row)})" for row in zip(query.rows, query.constants, query.closed, strict=True)]
    return _text(comments, lines)


def _above(query: TwinQuery, row: Array, constant: float, closed: bool) -> str:
    """row @ (g, g') > constant, or >= if closed, over the logits. Products with the margin's -1, 0, 1 are exact."""
    equal = "=" if closed else ""
    terms = [
        (float(factor * weight), f"Y_{name}[0,{i}]")
        for name, factor in zip("fg", row, strict=True)
        for i, weight in enumerate(query.margin)
        if factor * weight != 0
    ]
    if len(terms) == 1 and abs(terms[0][0]) == 1:
        sign, output = terms[0]
        return f"({'>' if sign > 0 else '<'}{equal} {output} {decimal(sign * constant)})"
    return f"(>{equal} (+ {' '.join(f'(* {decimal(factor)} {output})' for factor, output in terms)}) {decimal(constant)})"


def _text(comments: Sequence[str], lines: Sequence[str]) -> str:
    """Comments stand on lines of their own: some readers join all other lines before they look for them."""
    head = "".join(f"; {line}\n" for comment in comments for line in comment.splitlines())
    return head.encode("ascii", "backslashreplace").decode() + "\n".join(["", *lines]) + "\n"
