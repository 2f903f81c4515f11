"""Hybrid, the former config of parts by name: its arguments and its folders, as another config."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lightbert.config import from_mapping
from lightbert.errors import InputError, unknown
from lightbert.models.architecture import Architecture
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert

_SHELLS = ("post-norm", "bottleneck", "inverted")

HYBRID = "hybrid"
"""The family in the config.json of such folders."""

_DEFAULTS = {**asdict(Architecture()), "narrow": 128, "width": 256, "n_heads": 4, "inner": 1024}
_CONVOLUTION = ("convolution", "head_ratio")
_TERMS = ("fixed", "query_dynamic", "key_dynamic", "depthwise", "convolved")


def Hybrid(  # noqa: N802
    *,
    mixer: str = "mixed",
    shell: str = "post-norm",
    embeddings: str = "factorized",
    indexed_by: str = "query",
    **settings: Any,
) -> Architecture:
    """Return the config with these parts: ``change.*`` of any preset, and the config of any paper, give the same.

    mixer: attention, mixed, composite or local; further settings add to it what other mixers have.
    shell: post-norm, bottleneck or inverted. embeddings: plain, factorized or trigram.
    """
    for name, value, choices in (("mixer", mixer, _MIXERS), ("shell", shell, _SHELLS)):
        if value not in choices:
            raise unknown(name, value, choices)
    family, own = _MIXERS[mixer]
    if mixer == "local":
        own = {**own, "local": indexed_by, "local_kernel": settings.pop("kernel", 9)}
    values: dict[str, Any] = {**_DEFAULTS, "trigrams": embeddings == "trigram", **own, **settings}
    width, inside = values["width"], values["block_width"]
    fits = {"post-norm": inside == 0, "bottleneck": 0 < inside < width, "inverted": inside > width}
    if not fits[shell]:
        rule = {"post-norm": "0", "bottleneck": f"> 0 and < {width}", "inverted": f"> {width}"}[shell]
        raise InputError(f"block_width must be {rule} with shell = {shell!r}, got {inside}")
    return from_mapping(MobileBert if inside else family, values)


_MIXERS: dict[str, tuple[type[Architecture], dict[str, Any]]] = {
    "attention": (Bert, {}),
    "mixed": (ConvBert, {"convolution": "span", "head_ratio": 2}),
    "composite": (Composite, {"fixed": True, "query_dynamic": True}),
    "local": (Composite, {"fixed": False, "query_dynamic": False}),
}


def read_hybrid(saved: Mapping[str, Any]) -> Architecture:
    """Read the config of a folder that Hybrid wrote: it has all keys, also those that its mixer didn't use."""
    mixer = str(saved.get("mixer", "mixed"))
    unused = (() if mixer == "mixed" else _CONVOLUTION) + (() if mixer == "composite" else _TERMS)
    return Hybrid(**{name: value for name, value in saved.items() if name not in unused})


def renamed(name: str) -> str:
    """Return a parameter's name, as of a stack of feed-forwards: Hybrid's blocks had a single one without a number."""
    return re.sub(r"^(blocks\.\d+\.feedforward)\.(up|down|norm)\.", r"\1.0.\2.", name)
