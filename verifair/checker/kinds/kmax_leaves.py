"""From a kmax certificate to leaves: which box is asked about, how the tree cuts it, and what each leaf claims.

Like `check_leaves`, every function returns the reason for a rejection as text, or the thing asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Network
from encoders.problem import Booleans, Integers
from verifair.checker.certificate import Tree, semantics
from verifair.checker.check import about_another
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.schema.schema import Schema


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaves:
    """Raw boxes lower, upper (L, V), their protected entries those of the first combination, and claimed counts (L,)."""

    lower: Array
    upper: Array
    claim: Integers


def misfit(certificate: KmaxCertificate, network: Network, schema: Schema) -> str | None:
    """A reason for which the tree need not be looked at."""
    if not certificate.intact:
        return "the digest does not fit the content: the file was changed after it was written"
    if certificate.network_sha256 != network.source_sha256:
        return about_another("network", certificate.network_sha256, network.source_sha256)
    if certificate.schema_sha256 != schema.sha256:
        return about_another("schema", certificate.schema_sha256, schema.sha256)
    if certificate.features != tuple(feature.name for feature in schema.features):
        return "its features are not those of the schema, in order"
    if certificate.semantics != semantics(network):
        return f"its semantics are {certificate.semantics!r}, expected {semantics(network)!r}"
    if schema.domain.columns != network.inputs:
        return f"the schema describes {schema.domain.columns} input columns, the network takes {network.inputs}"
    if network.outputs > 2:
        return f"the network has {network.outputs} logits: buckets of one probability need one or two"
    return None


def root_of(certificate: KmaxCertificate, schema: Schema) -> tuple[Array, Array] | str:
    """The root box, its protected entries those of the first combination, or why the query means nothing."""
    query, domain = certificate.query, schema.domain
    names = [feature.name for feature in schema.features]
    if not set(query.protected) <= set(names) or len(set(query.protected)) < len(query.protected):
        return f"the protected features {', '.join(query.protected)} are not features of the schema, each named once"
    if set(query.box) != set(names) - set(query.protected):
        return "the query's box must name every feature but the protected ones"
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, (low, high) in query.box.items():
        v = names.index(name)
        lower[v], upper[v] = (np.ceil(low), np.floor(high)) if domain.integer[v] else (low, high)
        if not domain.lower[v] <= low <= high <= domain.upper[v] or lower[v] > upper[v]:
            return f"the query's box of {name} is empty, or leaves the declared range"
    protected = [names.index(name) for name in query.protected]
    if len({*query.combinations}) < len(query.combinations):
        return "a combination is listed twice"
    for row in query.combinations:
        if len(row) != len(protected):
            return f"a combination has {len(row)} values for {len(protected)} protected features"
        inside = (domain.lower[protected] <= row) & (np.array(row) <= domain.upper[protected])
        if not (inside & domain.integer[protected] & (np.array(row) == np.floor(row))).all():
            return f"the combination {row} is not one of whole values in the declared ranges"
    lower[protected] = upper[protected] = query.combinations[0]
    return lower, upper


def leaves_of(certificate: KmaxCertificate, root: tuple[Array, Array], integer: Booleans) -> Leaves | str:
    """The leaves of the tree, or why its arrays are no tree over the root box whose claims add up to the certificate's."""
    tree: Tree = certificate.tree
    pending = [root]
    lowers, uppers, claims = [], [], []
    for v, cut, bound in zip(tree.feature.tolist(), tree.cut.tolist(), tree.bound.tolist(), strict=True):
        if not pending:
            return "the tree has nodes left over after its last leaf"
        lower, upper = pending.pop()
        if v == -1:
            if not (bound <= certificate.upper and bound == int(bound)):  # NaN, no claim at all, fails here as well
                return f"a leaf claims {bound:g} buckets, the certificate {certificate.upper}"
            lowers.append(lower)
            uppers.append(upper)
            claims.append(int(bound))
            continue
        if not 0 <= v < len(lower):
            return f"the tree splits feature {v}, which does not exist"
        if certificate.features[v] in certificate.query.protected:
            return f"the tree splits {certificate.features[v]!r}, which is protected"
        last = upper[v] - 1 if integer[v] else upper[v]
        if not lower[v] <= cut <= last or (integer[v] and cut != np.floor(cut)):
            return f"the tree cuts feature {v} at {cut:g}, outside the box {lower[v]:g} .. {upper[v]:g}"
        left, right = upper.copy(), lower.copy()
        left[v], right[v] = cut, cut + 1 if integer[v] else cut
        pending += [(right, upper), (lower, left)]
    if pending:
        return f"the tree ends before its box is covered: {len(pending)} leaves are missing"
    return Leaves(lower=np.array(lowers), upper=np.array(uppers), claim=np.array(claims, dtype=np.int64))
