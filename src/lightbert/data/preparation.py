"""Prepares a folder of token shards from text sources on one machine: bounded memory, all cores, resumable."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightbert.config import to_mapping
from lightbert.data import shards, sources, tokenizer
from lightbert.data.encoding import (
    CHUNK,
    Place,
    Sentences,
    encode_chunks,
    is_held_out,
    read_stream,
    replace_surrogates,
    score,
    split_chunks,
    width,
)
from lightbert.data.shards import Manifest
from lightbert.data.sources import ReadOptions, Source
from lightbert.data.staging import (
    PREPARED,
    SETTINGS,
    STAGING,
    StreamWriter,
    finish,
    has_training_shards,
    no_training_text,
    partial_folder,
    publish,
    read_parts,
    remove_staged,
    verify_parts,
)
from lightbert.data.tokenizer import Model, check_vocab_size
from lightbert.errors import InputError
from lightbert.files import hash_files, sweep, temporary_file, write_atomic
from lightbert.files import locked as lock
from lightbert.progress import Bar, progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
    changed = [key for key in now if before.get(key) != now[key]]
    return ", ".join(
        "the input files" if key == "inputs" else f"{key} ({before.get(key)!r} before, {now[key]!r} now)"
        for key in changed
    )


_REMEDY = "use the same settings, another --out, or --again to start over"


def read_finished(folder: Path, settings: dict[str, Any]) -> Manifest | None:
    """Return the manifest of a finished folder, or None; raise an error if its settings or its tokenizer differ."""
    if not (folder / shards.MANIFEST).is_file():
        return None
    manifest = shards.read_manifest(folder)
    _check_same(folder, manifest.settings, settings)
    return manifest


def start_or_resume(folder: Path, settings: dict[str, Any], *, again: bool) -> None:
    """Write the settings to a new folder, or compare them with the settings of the existing parts."""
    path = folder / SETTINGS
    if not again and has_training_shards(folder):
        _check_same(folder, _read_settings(path), settings)
        return
    remove_staged(folder)
    write_atomic(path, json.dumps(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the staging folder against concurrent preparations; the lock is released when the process ends."""
    sweep(folder)
    # Before the lock is written, which would mark a folder of the user as ours.
    STAGING.check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock(folder, "is preparing", "wait for it or choose another --out"):
            try:
                yield
            except InputError:
                # Bad input that is found before the first finished shard leaves no files.
                if not has_training_shards(folder):
                    remove_staged(folder)
                raise
    finally:
        # Empty if nothing was finished.
        with suppress(OSError):
            folder.rmdir()


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is missing or damaged; pass --again to start over")
    return content


def _check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise an error if the settings differ, or if a given tokenizer isn't the one in the folder any more."""
    if changed := differences(before, now) or _changed_tokenizer(folder, now["tokenizer"]):
        raise InputError(f"'{folder}' was prepared with other settings: {changed}; {_REMEDY}")


def _changed_tokenizer(folder: Path, name: str | None) -> str:
    if name is None or not (folder / tokenizer.FILE).is_file():
        return ""
    return "" if tokenizer.is_saved(tokenizer.load(name), folder) else f"the content of the tokenizer '{name}'"


class PreparationResult(NamedTuple):
    """The manifest of the prepared folder, the number of parts that existed before, and what this call did."""

    manifest: Manifest
    parts_kept: int
    tokens: int = 0
    """Encoded by this call."""
    tokenizer_seconds: float = 0.0
    encoding_seconds: float = 0.0


def prepare(settings: Settings, out: Path, workers: int | None = None, *, again: bool = False) -> PreparationResult:
    """Prepare the folder `out`, or resume an interrupted call with the same settings.

    A finished folder with the same settings is left unchanged. If the settings differ, the error names the differences
    and nothing is changed. With `again`, preparation starts over, and an old folder is kept until the new one is
    finished.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers must be >= 1, got {workers}")
    inputs = sources.find(settings.sources)
    # The target of a link is written; "." and ".." have no name to which ".partial" could be added.
    out = out.resolve()
    if Path.cwd().is_relative_to(out):
        raise InputError(
            f"--out '{out}' is the current folder or contains it, and can't be replaced; name another folder"
        )
    folder = partial_folder(out)
    PREPARED.check(out)
    _check_outside(inputs, out, folder)
    wanted = resolve(settings, inputs, out)
    if not again and (existing := read_finished(out, wanted)) is not None:
        return PreparationResult(existing, len(existing.shards))
    try:
        with locked(folder):
            sweep(out.parent)
            if not again and (existing := read_finished(folder, wanted)) is not None:
                publish(folder, out, existing)
                return PreparationResult(existing, len(existing.shards))
            start_or_resume(folder, wanted, again=again)
            work = _Preparation(settings, inputs, folder, workers or _cores())
            start = time.perf_counter()
            work.write_tokenizer()
            middle = time.perf_counter()
            kept, tokens = work.encode()
            end = time.perf_counter()
            return PreparationResult(finish(folder, out, wanted), kept, tokens, middle - start, end - middle)
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror or error}; finished shards are kept") from error


def _check_outside(inputs: Iterable[Source], out: Path, folder: Path) -> None:
    """Check that no source is in a folder that is written."""
    written = (out, folder.resolve())
    for source in inputs:
        path = Path(source.name).resolve()
        if source.kind == "file" and any(path.is_relative_to(folder) for folder in written):
            raise InputError(f"the source '{source.name}' is in a folder that --out {out} replaces; move it elsewhere")


class _Preparation:
    """The work of one call of `prepare`."""

    def __init__(self, settings: Settings, inputs: list[Source], folder: Path, workers: int) -> None:
        self.settings, self.folder, self.workers = settings, folder, workers
        self.sources = [self._extracted(number, source) for number, source in enumerate(inputs)]
        known = all(source.kind == "file" for source in self.sources)
        self.size = sum(source.size for source in self.sources) if known else None

    def write_tokenizer(self) -> None:
        """Write the tokenizer to the folder: the given one, or one trained on a sample of the text."""
        path, settings = self.folder / tokenizer.FILE, self.settings
        if settings.tokenizer is not None:
            tokenizer.save(tokenizer.load(settings.tokenizer), self.folder)
        elif not path.is_file():
            with temporary_file(self.folder, "sample") as texts:
                with progress("reading for the tokenizer", self.size, "bytes") as bar:
                    documents = sample(self._texts(bar), settings.tokenizer_characters, settings.held_out)
                    self._check_sample(documents)
                    count = tokenizer.write_texts(texts, documents)
                # A large sample would need twice its memory while the other process has it, too.
                del documents
                tokenizer.save(self._train_tokenizer(texts, count), self.folder)

    def _check_sample(self, documents: Iterable[str]) -> None:
        """Raise an error if the sample has no text because the documents with text were held out."""
        texts = (text for text, _ in read_stream(self.sources, self._read, Place()))
        if not any(map(str.strip, documents)) and any(map(str.strip, texts)):
            raise no_training_text("all documents were held out")

    def _train_tokenizer(self, texts: Path, count: int) -> "Tokenizer":
        settings = self.settings
        passes = tokenizer.PASSES[settings.model]
        with progress("training the tokenizer", passes * count, "documents") as bar:
            bar.note(passes=passes)
            return tokenizer.train_in_process(
                texts,
                settings.model,
                settings.vocab_size,
                lowercase=settings.lowercase,
                report=lambda done: bar.advance(done - bar.done),
            )

    def encode(self) -> tuple[int, int]:
        """Write the missing parts; return the number of existing parts and the number of tokens encoded now."""
        count = self.settings.streams
        parts = [read_parts(self.folder, stream) for stream in range(count)]
        verify_parts(self.folder, (record for records in parts for record in records))
        tokens = 0
        done = sum(records[-1].place.position for records in parts if records)
        with progress("encoding", self.size, "bytes", done) as bar:
            for stream, records in enumerate(parts):
                if not (records and records[-1].ends_stream):
                    place = records[-1].place if records else Place()
                    tokens = self._write_stream(stream, self.sources[stream::count], len(records), place, bar, tokens)
        return sum(map(len, parts)), tokens

    def _write_stream(self, stream: int, inputs: list[Source], part: int, place: Place, bar: Bar, tokens: int) -> int:
        """Write the missing parts of a stream; return `tokens`, those of the earlier streams, plus its own."""
        file, settings = self.folder / tokenizer.FILE, self.settings
        chunks = split_chunks(read_stream(inputs, self._read, place), settings.shard_characters)
        # A small corpus is encoded before worker processes have started.
        workers = self.workers if self.size is None else min(self.workers, 1 + self.size // CHUNK)
        with StreamWriter(self.folder, width(tokenizer.load(file)), stream, settings.streams, part) as writer:
            for chunk, encoded in encode_chunks(chunks, file, settings.sentences, settings.held_out, workers):
                writer.append(encoded)
                tokens += len(encoded.train.tokens) + len(encoded.held_out.tokens)
                bar.note(tokens=f"{tokens:,}")
                bar.advance(chunk.mark.position - place.position)
                place = chunk.mark
                if chunk.ends_part:
                    writer.end_part(place)
            writer.end_part(place, ends_stream=True)
        return tokens

    def _read(self, source: Source) -> Iterator[tuple[str, int]]:
        is_extracted = Path(source.name).parent == self.folder
        return sources.documents(source, ReadOptions() if is_extracted else self.settings)

    def _texts(self, bar: Bar) -> Iterator[str]:
        before = 0
        for text, place in read_stream(self.sources, self._read, Place()):
            bar.advance(place.position - before)
            before = place.position
            yield text

    def _extracted(self, number: int, source: Source) -> Source:
        """Write docstrings to a text file once, because parsing packages takes longer than all later steps."""
        if source.kind != "docstrings":
            return source
        path = self.folder / f"docstrings-{number}.txt"
        if not path.is_file():
            with progress(f"reading {source.name}", source.size, "bytes") as bar:
                write_atomic(path, "\n\n".join(self._docstrings(source, bar)))
        return Source(str(path), "file", path.stat().st_size)

    def _docstrings(self, source: Source, bar: Bar) -> Iterator[str]:
        for text, position in sources.documents(source, ReadOptions(), self.workers):
            bar.advance(position - bar.done)
            yield text
        # The last files may contain nothing new.
        bar.advance(source.size - bar.done)


def sample(documents: Iterable[str], characters: int, held_out: float) -> list[str]:
    """Return a uniform sample of at most `characters` of the text, without held-out documents, to train a tokenizer.

    The choice depends on the hashes of the documents only. When the sample gets too large, the upper half of the hash
    range is dropped, for later documents too.
    """
    kept: list[tuple[float, str]] = []
    total, bound = 0, 1.0
    for document in map(replace_surrogates, documents):
        rank = score(document, b"sample")
        if rank >= bound or is_held_out(document, held_out):
            continue
        kept.append((rank, document))
        total += len(document)
        while total > characters and len(kept) > 1:
            bound /= 2
            kept = [(rank, text) for rank, text in kept if rank < bound] or [min(kept)]
            total = sum(len(text) for _, text in kept)
    return [text for _, text in kept]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
