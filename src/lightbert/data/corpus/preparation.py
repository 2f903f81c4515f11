"""Prepares a folder of token shards from text sources on one machine: bounded memory, all cores, resumable."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lightbert.data.corpus import tokenizer, training_process, vocabulary
from lightbert.data.corpus.encoding import is_held_out, replace_surrogates, score, width
from lightbert.data.corpus.encoding_pool import encode_chunks
from lightbert.data.corpus.manifest import Manifest
from lightbert.data.corpus.parts import CHUNK, Place, read_stream, split_chunks
from lightbert.data.corpus.resumption import locked, read_finished, start_or_resume
from lightbert.data.corpus.settings import Settings, resolve
from lightbert.data.corpus.stage import (
    PREPARED,
    StreamWriter,
    finish,
    no_training_text,
    partial_folder,
    publish,
    read_parts,
    verify_parts,
)
from lightbert.data.text import sources
from lightbert.data.text.sources import ReadOptions, Source
from lightbert.errors import InputError
from lightbert.files import sweep, temporary_file, write_atomic
from lightbert.progress import Bar, progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
    found = sources.find(settings.sources)
    # The target of a link is written; "." and ".." have no name to which ".partial" could be added.
    out = out.resolve()
    if Path.cwd().is_relative_to(out):
        raise InputError(
            f"--out '{out}' is the current folder or contains it, and can't be replaced; name another folder"
        )
    folder = partial_folder(out)
    PREPARED.check(out)
    _check_outside(found, out, folder)
    wanted = resolve(settings, found, out)
    if not again and (existing := read_finished(out, wanted)) is not None:
        return PreparationResult(existing, len(existing.shards))
    try:
        with locked(folder):
            sweep(out.parent)
            if not again and (existing := read_finished(folder, wanted)) is not None:
                publish(folder, out, existing)
                return PreparationResult(existing, len(existing.shards))
            start_or_resume(folder, wanted, again=again)
            work = _Preparation(settings, found, folder, workers or _cores())
            start = time.perf_counter()
            work.write_tokenizer()
            middle = time.perf_counter()
            kept, tokens = work.encode()
            end = time.perf_counter()
            return PreparationResult(finish(folder, out, wanted), kept, tokens, middle - start, end - middle)
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror or error}; finished shards are kept") from error


def _check_outside(found: Iterable[Source], out: Path, folder: Path) -> None:
    """Check that no source is in a folder that is written."""
    written = (out, folder.resolve())
    for source in found:
        path = Path(source.name).resolve()
        if source.kind == "file" and any(path.is_relative_to(each) for each in written):
            raise InputError(f"the source '{source.name}' is in a folder that --out {out} replaces; move it elsewhere")


class _Preparation:
    """The work of one call of `prepare`."""

    def __init__(self, settings: Settings, found: list[Source], folder: Path, workers: int) -> None:
        self.settings, self.folder, self.workers = settings, folder, workers
        self.sources = [self._extracted(number, source) for number, source in enumerate(found)]
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
                    count = training_process.write_texts(texts, documents)
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
        passes = vocabulary.PASSES[settings.model]
        with progress("training the tokenizer", passes * count, "documents") as bar:
            bar.note(passes=passes)
            return training_process.train(
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

    def _write_stream(self, stream: int, found: list[Source], part: int, place: Place, bar: Bar, tokens: int) -> int:
        """Write the missing parts of a stream; return `tokens`, those of the earlier streams, plus its own."""
        file, settings = self.folder / tokenizer.FILE, self.settings
        chunks = split_chunks(read_stream(found, self._read, place), settings.shard_characters)
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
        ours = Path(source.name).parent == self.folder
        return sources.documents(source, ReadOptions() if ours else self.settings)

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
