"""The shard writer as steps of datatrove pipelines, for preparation on a cluster with filters and de-duplication.

Task r of N reads and writes stream r of N, so a pipeline without filters writes the same bytes as
`lightbert prepare --streams N`. A task that runs again rewrites its stream. The output folder must be on a file system
that all tasks share.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from lightbert.data import sources, tokenizer
from lightbert.data.encoding import DocumentEncoder, Place, Sentences, split_chunks, width
from lightbert.data.sources import ReadOptions
from lightbert.data.staging import PREPARED, STAGING, StreamWriter, finish, partial_folder, remove_stream_records
from lightbert.files import LOCK, check_lock, write_lock


class ReadText(PipelineStep):  # type: ignore[misc]
    """Reads any source of `lightbert prepare`; datatrove's own readers can be used instead."""

    name = "lightbert sources"
    type = "📖 - READER"

    def __init__(self, *specifications: str, reading: ReadOptions | None = None) -> None:
        super().__init__()
        self.specifications, self.reading = specifications, reading or ReadOptions()

    def run(self, data: object = None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the documents of sources rank, rank + world_size and so on."""
        for source in sources.find(self.specifications)[rank::world_size]:
            for number, (text, _) in enumerate(sources.documents(source, self.reading)):
                self.stat_update("documents")
                yield Document(text=text, id=f"{source.name}/{number}")


class WriteShards(PipelineStep):  # type: ignore[misc]
    """Encodes documents and writes them as one stream of shards; `FinishShards` completes the folder."""

    name = "lightbert shards"
    type = "💽 - WRITER"

    def __init__(
        self,
        out: str | Path,
        tokenizer: str | Path,
        *,
        sentences: Sentences = "line",
        held_out: float = 0.01,
        shard_characters: int = 64_000_000,
    ) -> None:
        super().__init__()
        self.out, self.tokenizer = Path(out), Path(tokenizer)
        self.sentences, self.held_out, self.shard_characters = sentences, held_out, shard_characters

    def run(self, data: Iterable[Document] = (), rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Write stream `rank` of `world_size`; yields no documents."""
        # Each task runs on one core.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        # The target of a link is written.
        out = self.out.resolve()
        ids, folder = tokenizer.load(self.tokenizer), partial_folder(out)
        PREPARED.check(out)
        STAGING.check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Marks the folder as ours; tasks write separate streams and don't lock it.
        check_lock(folder / LOCK)
        write_lock(folder / LOCK)
        remove_stream_records(folder, rank)
        encode = DocumentEncoder(ids, self.sentences, self.held_out)
        place = Place()
        chunks = split_chunks(((document.text, place) for document in data), self.shard_characters)
        with StreamWriter(folder, width(ids), rank, world_size) as writer:
            for chunk in chunks:
                with self.track_time("chunk"):
                    encoded = encode(chunk.documents)
                    writer.append(encoded)
                    if chunk.ends_part:
                        writer.end_part(place)
                self.stat_update("train_tokens", value=len(encoded.train.tokens), unit="chunk")
                self.stat_update("held_out_tokens", value=len(encoded.held_out.tokens), unit="chunk")
            writer.end_part(place, ends_stream=True)
        yield from ()


class FinishShards(PipelineStep):  # type: ignore[misc]
    """Completes the folder after every task has written its stream; runs as a separate pipeline with one task."""

    name = "lightbert manifest"
    type = "💽 - WRITER"

    def __init__(self, writer: WriteShards) -> None:
        super().__init__()
        self.writer = writer

    def run(self, data: object = None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Save the tokenizer, write the manifest and rename the folder."""
        writer, out = self.writer, self.writer.out.resolve()
        folder = partial_folder(out)
        tokenizer.save(tokenizer.load(writer.tokenizer), folder)
        settings = {
            "tokenizer": str(writer.tokenizer),
            "sentences": writer.sentences,
            "held_out": writer.held_out,
            "shard_characters": writer.shard_characters,
        }
        finish(folder, out, settings)
        yield from ()
