"""The settings that determine the content of a prepared folder, and their comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.config import to_mapping
from lightbert.data.corpus.encoding import Sentences
from lightbert.data.corpus.vocabulary import Model, check_vocab_size
from lightbert.data.text.sources import ReadOptions, Source
from lightbert.errors import InputError
from lightbert.files import hash_files

# Offsets within a shard are 32-bit.
_MAX_SHARD_CHARACTERS = 1 << 31


@dataclass(frozen=True)
class Settings(ReadOptions):
    """All settings of a preparation except the number of workers.

    tokenizer: an existing tokenizer; if None, a `model` tokenizer with `vocab_size` entries is trained on a uniform
        sample of at most `tokenizer_characters` of the documents that are not held out.
    sentences: whether a sentence is a line, or is found in it by the sentence splitter.
    held_out: the share of held-out documents, chosen by their hash.
    shard_characters: the number of characters of text per shard.
    streams: the number of independent streams of shards, between which the sources are distributed.
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
        # Before the text is read for the tokenizer, which can take long.
        check_vocab_size(self.vocab_size)
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out must be in [0, 1), got {self.held_out}")
        if not 0 < self.shard_characters <= _MAX_SHARD_CHARACTERS:
            raise InputError(f"shard_characters must be in [1, {_MAX_SHARD_CHARACTERS}], got {self.shard_characters}")
        if self.streams < 1:
            raise InputError(f"streams must be >= 1, got {self.streams}")


def resolve(settings: Settings, sources: Sequence[Source], out: Path = Path()) -> dict[str, Any]:
    """Return the settings as plain values, with the name, size and hash of every input; ``out`` remembers hashes."""
    files = [Path(source.name) for source in sources if source.kind == "file"]
    hashes = {str(path): digest for path, digest in hash_files(files, out).items()}
    inputs = [[source.name, source.size, hashes.get(str(Path(source.name)))] for source in sources]
    return {**to_mapping(settings), "inputs": inputs}


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describe the settings that differ, or return an empty string.

    A setting that an earlier version didn't have is compared by its default.
    """
    before = {**to_mapping(Settings()), **before}
    changed = [key for key in now if not _same(before.get(key), now[key])]
    return ", ".join(
        "the input files" if key == "inputs" else f"{key} ({before.get(key)!r} before, {now[key]!r} now)"
        for key in changed
    )


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and all(isinstance(each, list) and len(each) == 2 for each in before):
        # Inputs as they were stored before version 0.1: without hashes.
        now = [each[:2] for each in now]
    return bool(before == now)
