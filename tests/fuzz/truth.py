"""Is what an accepted file states true?  Every row of the small world is listed, in fractions; nothing of the checker is used.

Each function gives the first thing found to be false, or None. Of what is continuous (explanations' scores, coefficients of a
causal model) points are drawn: they can only refute.
"""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

import verifair as vf
from encoders.arrays import Array
from tests.brute_force import fractions
from tests.builders import lattice
from tests.fuzz import world
from tests.soundness.random_fairness import Case, sigma
from verifair.checker.partition import PROVED, VIOLATED, Partition, PartitionStore
from verifair.systems.cec.explanations import cec_score, explanations
from verifair.systems.hyfair.certify.partition import located

SCHEMA = world.SCHEMA
NAMES = [feature.name for feature in SCHEMA.features]


@cache
def logits() -> dict[tuple[float, ...], Fraction]:
    """The exact logit of every legal row."""
    every = world.rows()
    found = world.network().forward(fractions(SCHEMA.encode(every)))[:, 0]
    return dict(zip(map(tuple, every.tolist()), found.tolist(), strict=True))


def legal(raw: Array) -> Iterator[tuple[float, ...]]:
    for row in map(tuple, raw.tolist()):
        if row in logits():
            yield row


def case(query: dict[str, Any]) -> Case:
    """The rows of a query's box; the same one for the same query, so that its rows are listed once."""
    fields = ("protected", "box", "differ", "epsilon", "relax", "scale", "signs")
    return _case(json.dumps({name: query.get(name) for name in fields}, sort_keys=True))


@lru_cache(maxsize=200)
def _case(text: str) -> Case:
    query = json.loads(text)
    asked = vf.IndividualFairness(
        model=world.network(),
        schema=SCHEMA,
        protected=query["protected"],
        box=query["box"],
        differ=query["differ"],
        epsilon=query["epsilon"] if query.get("scale") != "logit" else None,
        relax=query["relax"] or {},
        signs=query["signs"] or "deployed",
    )
    return Case(query=asked, seed=0, style="fuzz")


@lru_cache(maxsize=200)
def wrong(every: Case) -> Array:
    """(pairs,) which pairs a query forbids."""
    return every.wrong()


def fairness(query: dict[str, Any]) -> str | None:
    """individual-fairness: what its query says, whatever its proofs say."""
    every = case(query)
    if query.get("scale") == "logit" and query.get("epsilon") is not None:
        for i, k in zip(*every.pairs, strict=True):
            if every.logits[i] - every.logits[k] > Fraction(query["epsilon"]):
                return f"log-odds of {every.rows[i]} and {every.rows[k]} are further apart"
        return None
    bad = np.flatnonzero(wrong(every))
    return f"{every.rows[every.pairs[0][bad[0]]]} against {every.rows[every.pairs[1][bad[0]]]}" if len(bad) else None


def rows(content: dict[str, Any]) -> str | None:
    """persistent-bias, robustness: every statement by itself."""
    query = content["query"]
    for number, proof in enumerate(content["proofs"]):
        one = proof["statement"]
        row, prime = np.array(one["row"], dtype=float), one.get("prime", {})
        ends = [(value, value) for value in row]
        for v, feature in enumerate(SCHEMA.features):
            if feature.numeric and feature.unit and not feature.protected and feature.name not in query["protected"]:
                width = one["delta"] * feature.unit
                ends[v] = (max(row[v] - width, SCHEMA.domain.lower[v]), min(row[v] + width, SCHEMA.domain.upper[v]))
        near = lattice(
            *(np.array([f(end) for end in side]) for f, side in zip((np.ceil, np.floor), zip(*ends, strict=True), strict=True))
        )
        if one["delta"] not in query["delta"]:
            return f"proof {number}: delta {one['delta']} is none that is stated"
        if set(prime) - set(query["protected"]) or tuple(row.tolist()) not in logits():
            return f"proof {number} is about no row, or another feature"
        side = 1 if tuple(one["classes"]) == (1, 0) else -1 if tuple(one["classes"]) == (0, 1) else 0
        refuted = False
        for x in legal(near):
            other = tuple(prime.get(name, value) for name, value in zip(NAMES, x, strict=True))
            g, g_prime = side * logits()[x], side * logits().get(other, Fraction(0))
            if not side or (other not in logits() and one["goal"] != "robust"):
                if side:
                    continue
                return f"proof {number}: classes {one['classes']}"
            good = {
                "observed": g > g_prime,
                "flipped": g_prime > g,
                "robust": g > 0 or (g == 0 and side < 0),
            }[one["goal"]]
            refuted |= not good
            false = not good and "witness" not in proof
            if false or (one["goal"] == "robust") != (query["kind"] == "robustness"):
                return f"proof {number}: {one['goal']} fails at {x}"
        if "witness" in proof and not refuted:
            return f"proof {number}: its counterexample is none"
    return None if content["proofs"] else "nothing is proved"


def kmax(content: dict[str, Any]) -> str | None:
    query, upper = content["query"], content["upper"]
    index = [NAMES.index(name) for name in query["protected"]]
    groups: dict[tuple[float, ...], set[int]] = {}
    listed = {tuple(map(float, one)) for one in query["combinations"]}
    for row, logit in logits().items():
        inside = all(low <= row[NAMES.index(name)] <= high for name, (low, high) in query["box"].items())
        if inside and tuple(row[v] for v in index) in listed:
            bucket = min(int(sigma(logit) * query["buckets"]), query["buckets"] - 1)
            groups.setdefault(tuple(value for v, value in enumerate(row) if v not in index), set()).add(bucket)
    most = max(map(len, groups.values()), default=0)
    return f"somebody falls into {most}" if most > upper else None


def pairs(content: dict[str, Any]) -> str | None:
    """Every row near the one against every row near the other."""
    query = content["query"]
    for number, pair in enumerate(content["pairs"]):
        near = []
        for who in ("row", "counterpart"):
            row = np.array(pair[who], dtype=float)
            if not SCHEMA.domain.within(row[None])[0]:
                return f"pair {number}: {who} is no row"
            low, high = row.copy(), row.copy()
            for v, unit in ((0, 1), (1, 2)):
                width = query["delta"] * unit
                low[v] = max(np.ceil(row[v] - width), SCHEMA.domain.lower[v])
                high[v] = min(np.floor(row[v] + width), SCHEMA.domain.upper[v])
            near.append(SCHEMA.encode(lattice(low, high)))
        decided = {bool(value > 0) for x in near for value in world.network().forward(fractions(x))[:, 0]}
        baseline = np.array(content["baselines"][pair["baseline"]], dtype=float)
        g, h = (explanations(world.network(), x, np.tile(baseline, (len(x), 1)), threads=1) for x in near)
        score = cec_score(np.repeat(g, len(h), axis=0), np.tile(h, (len(g), 1))).max()
        if len(decided) > 1 or score > query["threshold"] + 1e-9:
            return f"pair {number}: score {score}, decisions {decided}"
    return None if content["pairs"] else "nothing is proved"


def counterfactuals(content: dict[str, Any]) -> str | None:
    """Corners and centre of the coefficients' box: is every row, and its counterfactual there, decided as stated?"""
    query = content["query"]
    terms = [term for equation in query["equations"] for term in equation["terms"]]
    stated: dict[tuple[Any, ...], dict[str, int]] = {}
    for proof in content["proofs"]:
        one = proof["statement"]
        stated.setdefault((*one["row"], *one.get("also", ())), {})[one["goal"]] = one["classes"][0]
    corners = list(
        product(*((Fraction(t["low"]), (Fraction(t["low"]) + Fraction(t["high"])) / 2, Fraction(t["high"])) for t in terms))
    )
    names = [*NAMES, *query["also"]]
    for values, classes in stated.items():
        if values[: len(NAMES)] not in logits() or set(classes) != {"factual", "counterfactual"}:
            return f"{values}: no row, or not both decisions: {classes}"
        if (logits()[values[: len(NAMES)]] > 0) != (classes["factual"] == 1):
            return f"{values} itself is decided otherwise"
        for theta in corners:
            other = _counterfactual(query, dict(zip(names, map(Fraction, values), strict=True)), theta)
            if other in logits() and (logits()[other] > 0) != (classes["counterfactual"] == 1):
                return f"the counterfactual {other} of {values} is decided otherwise"
    return None if stated else "nothing is proved"


def _counterfactual(query: dict[str, Any], row: dict[str, Fraction], theta: tuple[Fraction, ...]) -> tuple[float, ...]:
    new = {**row, **{name: Fraction(value) for name, value in query["do"].items()}}
    left = iter(theta)
    for equation in query["equations"]:
        node, change, moved = equation["node"], Fraction(0), False
        for term in equation["terms"]:
            before, after = row[term["parent"]], new[term["parent"]]
            moved = moved or before != after
            if term.get("values") is not None:
                before, after = (Fraction(term["values"][int(value)]) for value in (before, after))
            change += next(left) * (after - before)
        if moved:
            value = row[node] + change
            if equation.get("decimals") is not None:
                value = Fraction(round(value, equation["decimals"]))
            if equation.get("range") is not None:
                value = min(max(value, Fraction(equation["range"][0])), Fraction(equation["range"][1]))
            new[node] = value
    out = []
    for v, name in enumerate(NAMES):
        value = (
            new[name]
            if name in query["do"]
            else min(max(Fraction(round(new[name])), Fraction(SCHEMA.domain.lower[v])), Fraction(SCHEMA.domain.upper[v]))
        )
        out.append(float(value))
    return tuple(out)


def share(content: dict[str, Any]) -> str | None:
    """Of the points that have rows to compare: how many flip."""
    query = content["query"]
    index = [NAMES.index(name) for name in query["protected"]]
    points: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for row in logits():
        if all(low <= value <= high for value, (low, high) in zip(row, map(query["box"].get, NAMES), strict=True)):
            points.setdefault(tuple(value for v, value in enumerate(row) if v not in index), []).append(row)
    flipped, counted = 0, 0
    for people in points.values():
        differ = all if query["differ"] == "all" else any
        compared = [(x, y) for x, y in product(people, people) if differ(x[v] != y[v] for v in index)]
        counted += bool(compared)
        flipped += any(
            logits()[x] > 0 and (logits()[y] < 0 or (logits()[y] == 0 and query["signs"] != "strict")) for x, y in compared
        )
    fair, unfair = (Fraction(*map(int, content[name])) for name in ("fair", "unfair"))
    if not counted or not fair <= 1 - Fraction(flipped, counted) <= 1 - unfair:
        return f"{flipped} of {counted} points flip"
    return None


def centers(content: dict[str, Any]) -> str | None:
    """Every choice of k rows, as long as there are not too many; costs are compared with room for rounding."""
    query, rows = content["query"], np.array(content["rows"], dtype=float)
    good = [value > 0 for value in world.network().forward(fractions(SCHEMA.encode(rows)))[:, 0]]
    points = [_coordinates(row, query["changes"]) for row in rows]
    near = query["eps"] * (1 + 1e-9)
    after = [
        [j for j, to in enumerate(rows) if math.dist(points[i], points[j]) <= near and _moves(row, to, query["changes"])]
        for i, row in enumerate(rows)
    ]
    for name, proof in content["groups"].items():
        people = []
        for person in query["asked"][name]:
            reached, edge = {person}, [person]
            while edge:
                edge = [j for i in edge for j in after[i] if j not in reached and not reached.add(j)]  # type: ignore[func-returns-value]
            people.append({j: math.dist(points[person], points[j]) for j in reached if good[j]})
        if any(good[person] for person in query["asked"][name]):
            return f"{name}: somebody is decided favourably"
        people = [costs for costs in people if costs]
        limit, stated = query["max_cost"] or proof["value"], proof["value"]
        target = stated if query["max_cost"] is not None else max(math.ceil(query["coverage"] * len(people) - 1e-9), 1)
        if sum(any(costs.get(j, math.inf) <= limit * (1 + 2e-9) for j in proof["chosen"]) for costs in people) < target:
            return f"{name}: its choice does not cover {target}"
        if len(proof["chosen"]) > query["k"] or not people:
            return f"{name}: too many are chosen, or nobody is asked about"
        more = stated + 1 if query["max_cost"] is not None else target
        below = limit * (1 - 2e-9)
        every = {frozenset(i for i, costs in enumerate(people) if costs.get(j, math.inf) < below) for j in np.flatnonzero(good)}
        covers = {one for one in every if not any(one < other for other in every)}
        if math.comb(len(covers), min(query["k"], len(covers))) > 20_000:
            continue
        if any(len(frozenset().union(*some)) >= more for some in combinations(covers, min(query["k"], len(covers)))):
            return f"{name}: another choice is better"
    return None


def _coordinates(row: Array, changes: dict[str, str]) -> list[float]:
    found = []
    for value, feature in zip(row.tolist(), SCHEMA.features, strict=True):
        words = len(feature.categories or ())
        if words > 2 and not feature.ordered and changes[feature.name] not in ("increase", "decrease"):
            found += [float(value == k) for k in range(words)]
        else:
            low, high = feature.range or (0.0, words - 1.0)
            found.append((value - low) / (high - low))
    return found


def _moves(before: Array, after: Array, changes: dict[str, str]) -> bool:
    rules = {"fixed": float.__eq__, "increase": float.__le__, "decrease": float.__ge__, "free": lambda one, other: True}
    return all(rules[changes[name]](one, other) for name, one, other in zip(NAMES, before.tolist(), after.tolist(), strict=True))


def partition(path: Path) -> str | None:
    """Of the parts said to be proved none holds a pair that is treated differently; of those said to be refuted each does."""
    with PartitionStore(path) as store:
        about, extent = store.about, store.extent
        status = {int(first) + k: int(one) for first, many in store.statuses() for k, one in enumerate(many)}
    every = case({**about, "scale": "probability"})
    cut = Partition.of(SCHEMA.domain, *every.box, size=int(about["size"]), whole=[NAMES.index(name) for name in about["protected"]])
    first, second = every.pairs
    one = np.where(every.first_copy, first, second)
    bad = set(located(cut, every.rows[one[wrong(every)]]).tolist())
    said = {kind: {part for part, found in status.items() if found == kind} for kind in (PROVED, VIOLATED)}
    if said[PROVED] & bad:
        return f"part {min(said[PROVED] & bad)} is not proved"
    if said[VIOLATED] - bad:
        return f"part {min(said[VIOLATED] - bad)} is not refuted"
    if any(part not in range(cut.count) for part in status):
        return "a part does not exist"
    if extent.total != cut.count or extent.proved != len(said[PROVED]) or extent.refuted != len(said[VIOLATED]):
        return "its counts are not those of its parts"
    return None


def false(kind: str, content: dict[str, Any]) -> str | None:
    """What is false about a certificate's content, by its format or its query's kind."""
    match content["query"]["kind"]:
        case "individual-fairness":
            return fairness(content["query"])
        case "persistent-bias" | "robustness":
            return rows(content)
        case "k-discrimination":
            return kmax(content)
        case "explanation-consistency":
            return pairs(content)
        case "counterfactual-decision":
            return counterfactuals(content)
        case "certified-share":
            return share(content)
        case "group-counterfactuals":
            return centers(content)
    return f"{kind}: nobody knows what this is"
