"""What a checkpoint turns out to hold, and how that is found out: from shapes first, from a config for the rest."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lightbert.errors import InputError, unknown
from lightbert.interop.families import Heads, Settings
from lightbert.interop.keymap import Keymap
from lightbert.models import Config

Choices = Mapping[str, Mapping[Any, Settings]]
"""Key of a JSON config -> its possible values -> what each means in our fields."""

_FIELDS = {
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
    "type_vocab_size": "segments",
    "embedding_size": "narrow",
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "n_heads",
    "intermediate_size": "inner",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
_WITHOUT_EFFECT = {"initializer_range"}


@dataclass(frozen=True)
class Original:
    """A model of a release, ready to be rebuilt as ours."""

    family: str
    """What transformers calls it; ELECTRA is our BERT."""
    config: Config
    heads: Heads
    keymap: Keymap
    last: int = 0
    """The number of a block's last feed-forward, for tables that name it apart."""


def shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    """The shape of a tensor that every checkpoint of the family has."""
    if name not in tensors:
        raise InputError(f"the checkpoint lacks '{name}'; it is incomplete")
    return tuple(tensors[name].shape)


def count(names: Iterable[str], stem: str) -> int:
    """How many are numbered after `stem`, from 0 to the highest number."""
    numbers = [int(match[1]) for name in names if (match := re.match(rf"{re.escape(stem)}(\d+)/", name))]
    return max(numbers, default=-1) + 1


def agreed(told: Settings, given: Settings, fields: Mapping[str, str], choices: Choices) -> Settings:
    """What the shapes told, completed by a JSON config of the release, which may not contradict them.

    `fields` names further keys that carry over as they are, `choices` those whose values mean something else to us.
    """
    fields = {**_FIELDS, **fields}
    settings = dict(told)
    for key, value in given.items():
        if key in _WITHOUT_EFFECT:
            continue
        if key not in fields and key not in choices:
            raise unknown("key in the config", key, [*fields, *choices])
        for field, ours in ({fields[key]: value} if key in fields else _chosen(key, value, choices[key])).items():
            if told.get(field, ours) != ours:
                raise InputError(
                    f"'{key}' is {value!r} in the config, but the checkpoint has the {field} {told[field]!r}"
                )
            settings[field] = ours
    return settings


def _chosen(key: str, value: object, possible: Mapping[Any, Settings]) -> Settings:
    for choice, fields in possible.items():
        if choice == value:
            return fields
    raise unknown(key, str(value), map(str, possible))
