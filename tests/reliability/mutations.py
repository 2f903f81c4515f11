"""Mutations of files, drawn from a seed: flipped bits, truncation, and values of other types in JSON and TOML."""

import json
import random
from collections.abc import Iterator
from typing import Any

ABSURD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 10**9, 10**30, -(10**30), 0.5, float("nan"), float("inf"), 1e308),
    *("", "x", "../x", "\ud83d", "a" * 10_000, [], [[]], [1, "a", None], {}, {"a": {"b": 1}}, [[[[[[[[[[]]]]]]]]]]),
)


def bytes_of(content: bytes, choose: random.Random) -> bytes:
    """Flip bits, cut, repeat or insert bytes."""
    mutated = bytearray(content)
    for _ in range(choose.choice((1, 1, 1, 4, 32))):
        at = choose.randrange(len(mutated) + 1)
        match choose.randrange(5):
            case 0 if at < len(mutated):
                mutated[at] ^= 1 << choose.randrange(8)
            case 1:
                del mutated[at:]
            case 2:
                mutated[at:at] = choose.randbytes(choose.randint(1, 8))
            case 3:
                mutated[at : at + choose.randint(1, 64)] = b""
            case _:
                mutated[at:at] = mutated[: choose.randint(0, 256)]
    return bytes(mutated)


def value_of(content: Any, choose: random.Random) -> Any:
    """Replace, remove or add one value somewhere in plain values."""
    places = list(_places(content))
    if not places:
        return choose.choice(ABSURD)
    container, key = choose.choice(places)
    match choose.randrange(4):
        case 0 if isinstance(container, dict):
            container[choose.choice(("x", "", "seed", "depth", "format"))] = choose.choice(ABSURD)
        case 1:
            del container[key]
        case _:
            container[key] = choose.choice(ABSURD)
    return content


def json_of(content: bytes, choose: random.Random) -> bytes:
    """Mutate the values of a JSON file, or its bytes."""
    if choose.random() < 0.3:
        return bytes_of(content, choose)
    return json.dumps(value_of(json.loads(content), choose)).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)
