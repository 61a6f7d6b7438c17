"""Mutations that know no format but bytes and trees (JSON, TOML): every one is drawn from the generator that is passed in."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

TOKENS = (
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\xff" * 10,
    b"\x7f\xff\xff\xff",
    b"{",
    b"}",
    b"[[",
    b"]]",
    b'"',
    b"null",
    b"NaN",
    b"1e400",
    b"-0",
    b"../",
    b"/dev/zero",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x92\xa9",
    b"\r\n",
    b",,",
    b"=",
    b"#",
    b"9" * 400,
)


class Raw(str):
    """Text that stands in the file as it is, where a value would."""


def weird(rng: random.Random) -> Any:
    """A value that a reader may not have thought of."""
    huge = rng.choice((10**12, 10**19, -(10**19), 2**63, 2**31, -(2**31) - 1, 2**53 + 1))
    return rng.choice((
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        0.5,
        -0.0,
        1e-320,
        5e-324,
        1e308,
        -1e308,
        1e39,
        3.4e38,
        huge,
        float(2**53),
        Raw("NaN"),
        Raw("Infinity"),
        Raw("-Infinity"),
        Raw("1e400"),
        Raw("-1e999"),
        Raw("1" * 5000),
        Raw("nan"),
        Raw("inf"),
        "",
        " ",
        "\x00",
        "a\x00b",
        "\ud800",
        "é" * 3,
        "\u202e",
        "../../etc/passwd",
        "/etc/passwd",
        "x" * 70_000,
        "[bold]",
        "[/]",
        "{}",
        "%s%n",
        "1",
        "-1",
        "NaN",
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"a": {"b": []}},
        [0] * 3000,
        deep(20),
        Raw("[" * 900 + "]" * 900),
        Raw("[" * 100_000),
        Raw('{"a":' * 50_000),
        list(range(50)),
    ))


def deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a tree, the tree's own place () included."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a place, changed in place where that is not the whole."""
    if not path:
        return value
    at(tree, path[:-1])[path[-1]] = value
    return tree


def nudged(rng: random.Random, value: Any) -> Any:
    """A value near the one given: what a forger would try."""
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None))
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, value * 2, 0, 1, float(value), value + rng.randint(-5, 5)))
    if isinstance(value, float):
        return rng.choice(
            (value + 1, value - 1, -value, value * (1 + 2**-52), value * 1.01, value * 0.99, value + 1e-9, 0.0, value / 2)
        )
    if isinstance(value, str):
        swapped = value.swapcase()
        return rng.choice((value + "x", value[:-1], swapped, value[:1000] * 2, value[::-1], " " + value))
    return value


def tree_mutant(rng: random.Random, tree: Any, *, gentle: float = 0.5) -> Any:
    """One to four changes. gentle: the share of them that keep to values of the same kind, from elsewhere in the tree or nearby."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        every = list(places(tree))
        deepest = [path for path in every if path]
        if not deepest:
            return weird(rng)
        # the short arrays matter more than the long ones: first a random depth, then a place there
        length = rng.choice(sorted({len(path) for path in deepest}))
        path = rng.choice([one for one in deepest if len(one) == length])
        old = at(tree, path)
        tree = _gently(rng, tree, path, old, every) if rng.random() < gentle else _roughly(rng, tree, path, old, every)
    return tree


def _gently(rng: random.Random, tree: Any, path: tuple[Any, ...], old: Any, every: list[tuple[Any, ...]]) -> Any:
    parent = at(tree, path[:-1])
    match rng.randrange(5):
        case 0 if isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(old))
        case 1 if isinstance(parent, list):
            other = rng.randrange(len(parent))
            parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
        case 2 if isinstance(parent, list):
            del parent[path[-1]]
        case 3:  # the value of a place of the same name, or of the same kind
            same = [one for one in every if one and one[-1] == path[-1]] or every
            return put(tree, path, copy.deepcopy(at(tree, rng.choice(same))))
        case _:
            if isinstance(old, list) and old:
                k = rng.randrange(len(old))
                old[k] = nudged(rng, old[k])
            elif isinstance(old, dict) and old:
                key = rng.choice(list(old))
                old[key] = nudged(rng, old[key])
            else:
                return put(tree, path, nudged(rng, old))
    return tree


def _roughly(rng: random.Random, tree: Any, path: tuple[Any, ...], old: Any, every: list[tuple[Any, ...]]) -> Any:
    parent = at(tree, path[:-1])
    match rng.randrange(8):
        case 0:
            del parent[path[-1]]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(("x", "", "\x00", "format", "name", "kind", "é", "\ud800"))] = weird(rng)
        case 2 if isinstance(parent, dict) and "\ud800" not in str(path[-1]):  # the same key twice
            return put(tree, path, Raw(f"{json.dumps(old, default=repr)},{json.dumps(str(path[-1]))}:{text(weird(rng))}"))
        case 3:
            return put(tree, path, [copy.deepcopy(old)])
        case 4:
            return put(tree, path, copy.deepcopy(at(tree, rng.choice(every))))
        case 5 if isinstance(old, list) and old:
            del old[rng.randrange(len(old)) :]
        case 6 if isinstance(old, str):
            return put(
                tree,
                path,
                rng.choice((old.encode("utf-8", "surrogatepass"), [old], 1, old + "\ud800", old[:40] * 5000))
                if rng.random() < 0.5
                else weird(rng),
            )
        case _:
            return put(tree, path, weird(rng))
    return tree


def text(tree: Any) -> str:
    """JSON with the Raw parts as they are."""
    raws: list[str] = []

    def swapped(value: Any) -> Any:
        if isinstance(value, Raw):
            raws.append(str(value))
            return f"\x01raw{len(raws) - 1}\x01"
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, dict):
            return {str(key): swapped(one) for key, one in value.items()}
        if isinstance(value, list):
            return [swapped(one) for one in value]
        return value

    out = json.dumps(swapped(tree), separators=(",", ":"))
    for k, raw in enumerate(raws):
        out = out.replace(f'"\\u0001raw{k}\\u0001"', raw, 1)
    return out


def toml_text(content: dict[str, Any]) -> str:
    """A TOML file: top-level keys with inline values, Raw parts as they are."""
    return (
        "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in content.items())
        if isinstance(content, dict)
        else _toml(content)
    )


def _toml(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _toml_key(key: Any) -> str:
    return json.dumps(str(key))


def bytes_mutant(rng: random.Random, data: bytes) -> bytes:
    """One to eight changes of bytes anywhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        start = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 1, 2, 4, 16, 200)), len(out) - start)
        match rng.randrange(8):
            case 0 if length:
                out[start] ^= 1 << rng.randrange(8)
            case 1 if length:
                out[start] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5B))
            case 2:
                del out[start : start + length]
            case 3:
                out[start:start] = out[start : start + length] * rng.choice((1, 2, 50))
            case 4:
                out[start:start] = rng.randbytes(rng.choice((1, 4, 30)))
            case 5:
                out[start:start] = rng.choice(TOKENS)
            case 6 if rng.random() < 0.3:
                del out[start:]
            case _:
                other = rng.randrange(len(out) + 1)
                out[start : start + length] = out[other : other + length]
    return bytes(out)
