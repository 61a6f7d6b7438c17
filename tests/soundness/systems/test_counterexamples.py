"""Enumeration against brute force: exactly the people who are decided otherwise, each once; "all" is never said of fewer."""

from collections.abc import Iterator

import numpy as np
import pytest

import verifair as vf
from encoders.arrays import Array
from solvers.outcome import BackendError
from tests.builders import categorical, integer, network_of, real, schema_of
from tests.soundness.random_fairness import STYLES_HERE, Case, small_cases
from verifair.engine.counterexamples import APART, Counterexamples, counterexamples
from verifair.errors import QueryError

Person = tuple[float, ...]


def shared(case: Case) -> list[int]:
    protected = [case.schema.index(name) for name in case.query.protected]
    return [v for v in range(len(case.schema.features)) if v not in protected]


def truth(case: Case) -> set[Person]:
    """Everybody with a partner in the box who is decided otherwise, without protected values."""
    first = case.pairs[0][case.wrong()]
    return {tuple((row + 0.0).tolist()) for row in case.rows[first][:, shared(case)]}


def rows_of(case: Case, side: list[dict[str, object]]) -> Array:
    return np.array([[case.schema.raw_value(name, value) for name, value in row.items()] for row in side])


def people(case: Case, found: Counterexamples) -> list[Person]:
    """Those listed; each pair is legal, in the box, compared by the query and wrong in exact arithmetic."""
    if not found.found:
        return []
    first, second = (rows_of(case, [dict(getattr(one, side)) for one in found.found]) for side in ("x", "x_prime"))
    for k, (x, x_prime) in enumerate(zip(first, second, strict=True)):
        both = np.array([x, x_prime])
        assert case.schema.inside(both).all()
        assert ((both >= case.box[0]) & (both <= case.box[1])).all()
        verdict = vf.verify(case.asking(box=_only(case, x, x_prime)).query)
        assert verdict.status is vf.Status.VIOLATED, found.found[k]
    return [tuple((x + 0.0).tolist()) for x in first[:, shared(case)]]


def _only(case: Case, x: Array, x_prime: Array) -> dict[str, object]:
    """The box of one pair."""
    low, high = np.minimum(x, x_prime), np.maximum(x, x_prime)
    index = case.schema.index
    return {
        feature.name: tuple(feature.word(end) for end in (low[index(feature.name)], high[index(feature.name)]))
        for feature in case.schema.features
    }


def asked(styles: tuple[str, ...], count: int, first: int = 0) -> Iterator[Case]:
    for style in styles:
        for case in small_cases(style, count, first=first):
            if not case.query.relax:
                yield case.asking(epsilon=None)
                yield case.asking(epsilon=0.05)


def whole(case: Case) -> bool:
    """Whether no real feature moves."""
    domain = case.schema.domain
    return not ((case.box[0] < case.box[1]) & ~domain.integer).any()


@pytest.mark.parametrize("style", STYLES_HERE)
def test_everybody_is_found_and_nobody_twice(style: str) -> None:
    for case in asked((style,), 6):
        if not whole(case):
            continue
        expected = truth(case)
        found = counterexamples(case.query, 10_000, budget=vf.Budget(seconds=60))
        got = people(case, found) if len(expected) < 20 else [
            tuple((row + 0.0).tolist()) for row in rows_of(case, [dict(one.x) for one in found.found])[:, shared(case)]
        ]
        assert len(got) == len(set(got))
        assert set(got) == expected
        assert found.complete
        assert found.reason is None
        assert not found.apart
        assert (found.certificate is not None) == (not expected)
        if found.certificate is not None:
            report = vf.check(found.certificate, model=case.query.model, schema=case.schema)
            assert report.accepted or found.certificate.trust is vf.Trust.CLAIMED


@pytest.mark.parametrize(("method", "solver"), [("bnb", None), ("milp", "highs"), ("milp", "z3"), ("smt", None), ("lp", None)])
def test_every_method_lists_no_one_wrongly_and_all_only_where_these_are_all(method: str, solver: str | None) -> None:
    complete = 0
    for case in asked(("plain", "integer"), 3, first=40):
        if not whole(case) or len(expected := truth(case)) > 30:
            continue
        found = counterexamples(case.query, 10_000, budget=vf.Budget(seconds=20), method=method, solver=solver)
        got = people(case, found)
        assert len(got) == len(set(got))
        assert set(got) <= expected
        if found.complete:
            complete += 1
            assert set(got) == expected
        else:
            assert found.reason is not None
    assert complete or method == "lp"


def test_as_many_as_asked_for_and_no_claim_about_others() -> None:
    checked = 0
    for case in asked(("plain", "integer"), 8):
        expected = truth(case)
        if not whole(case) or len(expected) < 3:
            continue
        checked += 1
        fewer = counterexamples(case.query, 2, budget=vf.Budget(seconds=60))
        assert len(set(people(case, fewer))) == len(fewer.found) == 2
        assert not fewer.complete
        assert fewer.reason is None
        assert fewer.first_seconds is not None
        assert 0 < fewer.first_seconds <= fewer.seconds
    assert checked


def one_feature(*shared_feature: dict[str, object]) -> vf.Schema:
    return schema_of(categorical("sex", "Female", "Male", protected=True), *shared_feature, positive="logit > 0",
                     outcomes=["no", "yes"])


def test_real_people_are_apart_and_so_it_is_said() -> None:
    """logit = income + sex - 1.5 on 0 .. 2: 0.5 < income < 1.5 is decided otherwise."""
    schema = one_feature(real("income", 0.0, 2.0, scale="none"))
    query = vf.IndividualFairness(model=network_of(([[1.0, 1.0]], [-1.5])), schema=schema, protected=["sex"])
    some = counterexamples(query, 50, budget=vf.Budget(seconds=60))
    incomes = np.sort([float(one.x["income"]) for one in some.found])
    assert len(incomes) == 50
    assert ((incomes >= 0.5) & (incomes <= 1.5)).all()
    assert (np.diff(incomes) >= 0.999 * 2 * APART).all()
    assert some.apart == {"income": 2 * APART}
    every = counterexamples(query, 10_000, budget=vf.Budget(seconds=120))
    assert every.complete
    assert 250 <= len(every.found) <= 501
    incomes = np.sort([float(one.x["income"]) for one in every.found])
    assert np.diff(np.concatenate([[0.5], incomes, [1.5]])).max() <= 2 * 2 * APART * (1 + 1e-9)  # nobody else further away


def test_a_network_that_ignores_the_protected_feature_has_nobody_and_a_certificate() -> None:
    schema = one_feature(integer("age", 0, 9))
    network = network_of(([[0.0, 1.0]], [-4.5]))
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = counterexamples(query, 5)
    assert (found.found, found.complete, found.reason, found.first_seconds) == ((), True, None, None)
    assert found.certificate is not None
    assert vf.check(found.certificate, model=network, schema=schema).accepted


def test_time_and_ctrl_c_keep_who_is_found_and_claim_nothing() -> None:
    schema = one_feature(integer("age", 0, 999_999), integer("hours", 0, 999_999))
    query = vf.IndividualFairness(model=network_of(([[1.0, 0.0, 0.0]], [-0.5])), schema=schema, protected=["sex"])
    late = counterexamples(query, 10**6, budget=vf.Budget(seconds=1.0))
    assert late.found
    assert (late.complete, late.reason) == (False, vf.Reason.TIME)

    def stop(done: int, total: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    kept = counterexamples(query, 10**6, budget=vf.Budget(seconds=60), progress=stop)
    assert len(kept.found) >= 3
    assert (kept.complete, kept.reason) == (False, vf.Reason.INTERRUPTED)


def test_exactly_as_many_as_there_are() -> None:
    """logit = age + sex - 3.5 on 0 .. 9: age 3 alone flips."""
    schema = one_feature(integer("age", 0, 9))
    query = vf.IndividualFairness(model=network_of(([[1.0, 1.0]], [-3.5])), schema=schema, protected=["sex"])
    for count in (1, 2, 100):
        found = counterexamples(query, count)
        assert [one.x["age"] for one in found.found] == [3]
        assert found.complete or count == 1  # what is left may, or may not, have been looked at
        assert found.certificate is None


def test_what_cannot_be_counted_is_refused() -> None:
    schema = one_feature(integer("age", 0, 9))
    query = vf.IndividualFairness(model=network_of(([[1.0, 1.0]], [-3.5])), schema=schema, protected=["sex"], relax={"age": 1})
    with pytest.raises(QueryError, match="relaxed features"):
        counterexamples(query, 3)
    plain = vf.IndividualFairness(model=query.model, schema=schema, protected=["sex"])
    for options, said in (({"method": "magic"}, "unknown"), ({"solver": "cplex"}, "no solver is called"),
                          ({"method": "bnb", "solver": "highs"}, "bnb asks no solver")):
        with pytest.raises((QueryError, BackendError), match=said):
            counterexamples(plain, 3, **options)
    with pytest.raises(QueryError, match="at least 1"):
        counterexamples(plain, 0)
