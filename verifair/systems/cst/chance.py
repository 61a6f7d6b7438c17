"""What chance finds: the same test with the protected attribute dealt out anew, so that it means nothing.

Shares of refusals in two groups of fifteen are hardly ever equal, and where groups differ in size, or have reached the edge of the
table, one is drawn to the mean more than the other. The counts of a test are evidence by what they exceed of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from verifair.errors import QueryError
from verifair.systems.arguments import check_number
from verifair.systems.cst.deciders import taken
from verifair.systems.cst.estimator import SituationTesting


def chance(
    test: SituationTesting, do: Mapping[str, Any], *, deals: int = 10, progress: Callable[[int, int], None] | None = None
) -> pd.DataFrame:
    """Mean counts over `deals` of ST and CST w/o, a line for each method and k, columns as in `Situations.counts`.

    test: fitted. In each deal the rows' values of do's attributes change hands at random, together, and the causal model is fitted
    anew; attributes and decisions stay, so that nothing depends on the protected ones. (CF and CST with search centers take
    decisions on counterfactuals, which a decider that reads the attribute would still make depend on it.)
    progress(done, total) counts deals.   Raises QueryError for no deals.
    Reference: none; a permutation test of the counts.
    """
    check_is_fitted(test)
    test.causal_model_.check(test.frame_, do)
    check_number("deals", deals, whole=True)
    if deals < 1:
        raise QueryError(f"deals = {deals}: expected 1 or more")
    frame, columns, found = test.frame_, list(do), []
    for deal in range(deals):
        order = np.random.default_rng([test.seed, deal]).permutation(len(frame))
        dealt = frame.assign(**{name: frame[name].iloc[order].set_axis(frame.index) for name in columns})
        with threadpool_limits(limits=1):
            model = replace(test.causal_model_, fitted={}).fit(dealt, seed=test.seed)
        people = dealt.iloc[test.complainants(do, dealt)]
        tilde = taken(test.decider, model.counterfactual(people, do, seed=test.seed))
        found.append(test.compared(dealt, tilde, do).counts())
        if progress is not None:
            progress(deal + 1, deals)
    return pd.concat(found).groupby(["method", "k"], sort=False, as_index=False).mean()
