"""What decides the bytes of a prepared folder, and whether work on disk was done with the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightbert.config import to_mapping
from lightbert.data.corpus.encoding import Sentences
from lightbert.data.corpus.vocabulary import Model
from lightbert.data.text.sources import ReadOptions, Source
from lightbert.errors import InputError

# Offsets within a shard have 32 bits.
_MAX_SHARD_CHARACTERS = 1 << 31


@dataclass(frozen=True)
class Settings(ReadOptions):
    """Everything but the number of workers.

    tokenizer: a tokenizer to take; without one, `model` with `vocab_size` entries is trained on at most
        `tokenizer_characters` of the text, spread evenly over the documents that are not held out.
    sentences: what a sentence is: a line, or what the splitter for prose finds in it.
    held_out: the share of documents, chosen by their hash, that is kept apart.
    shard_characters: the text that goes into a shard.
    streams: into how many independent series of shards the sources are dealt out.
    """

    sources: tuple[str, ...] = ()
    tokenizer: str | None = None
    model: Model = "wordpiece"
    vocab_size: int = 30522
    lowercase: bool = True
    tokenizer_characters: int = 64_000_000
    sentences: Sentences = "line"
    held_out: float = 0.01
    shard_characters: int = 64_000_000
    streams: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out must be a share from 0 to below 1, not {self.held_out}")
        if not 0 < self.shard_characters <= _MAX_SHARD_CHARACTERS:
            raise InputError(f"shard_characters must be from 1 to {_MAX_SHARD_CHARACTERS}, not {self.shard_characters}")
        if self.streams < 1:
            raise InputError(f"streams must be at least 1, not {self.streams}")


def resolve(settings: Settings, sources: Sequence[Source]) -> dict[str, Any]:
    """Return the settings as plain values, with the name and size of everything that will be read."""
    return {**to_mapping(settings), "inputs": [[source.name, source.size] for source in sources]}


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say which settings differ, or nothing."""
    changed = [key for key in now if before.get(key) != now[key]]
    return ", ".join(
        "the input files" if key == "inputs" else f"{key} ({before.get(key)!r} before, {now[key]!r} now)"
        for key in changed
    )
