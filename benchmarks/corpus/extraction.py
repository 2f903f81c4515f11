"""Extracts the text of a source: a folder of a git repository, or a local file that is text already."""

import bz2
import gzip
import lzma
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import text_formats, xml_formats
from benchmarks.corpus.prose import Document, clean
from benchmarks.corpus.repositories import File, list_files, read_files

Format = Callable[[bytes], Iterator[Document]]

_OPENERS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".bz3": lambda content: subprocess.run(["bzip3", "-dc"], input=content, check=True, capture_output=True).stdout,
}


@dataclass(frozen=True)
class Source:
    """A row of sources.toml.

    group: the part of the mixture that it belongs to.
    paths: a regular expression; of `repository` at `commit`, the paths that match are read. A source without repository
        is the file `paths` of the folder --data.
    newest: of files NAME-v1.xml, NAME-v2.xml and so on, read only the last.
    scans: drop paragraphs with many words that are not in the vocabulary.
    """

    name: str
    group: str
    format: str
    paths: str
    licence: str
    repository: str = ""
    commit: str = ""
    newest: bool = False
    scans: bool = False

    @property
    def read(self) -> Format:
        """The function that turns a file into documents."""
        module = xml_formats if hasattr(xml_formats, self.format) else text_formats
        function: Format = getattr(module, self.format)
        return function


def read_sources(table: Path) -> list[Source]:
    """Read the table of sources; of copied text, the copy in the first source is kept."""
    return [Source(**row) for row in tomllib.loads(table.read_text("utf-8"))["sources"]]


def extract(source: Source, mirrors: Path, data: Path, vocabulary: Path, out: Path) -> None:
    """Write the documents of a source to a file, separated by blank lines."""
    known = frozenset(vocabulary.read_text("utf-8").split()) if source.scans else frozenset()
    partial = out.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        for content in _contents(source, mirrors, data):
            try:
                documents = list(source.read(content))
            except (ValueError, SyntaxError):  # damaged JSON and XML
                continue
            for document in clean(documents, known) if source.repository else documents:
                file.write("\n".join(document) + "\n\n")
    partial.rename(out)


def mirror(repository: str, mirrors: Path) -> Path:
    """Return where the bare git directory of OWNER/NAME is expected."""
    return mirrors / repository.replace("/", "+") / "repo"


def _contents(source: Source, mirrors: Path, data: Path) -> Iterator[bytes]:
    if source.repository:
        repository = mirror(source.repository, mirrors)
        files = list_files(repository, source.commit, source.paths)
        files = newest(files) if source.newest else files
        yield from (content for _, content in read_files(repository, files))
    else:
        path = data / source.paths
        content = path.read_bytes()
        yield _OPENERS[path.suffix](content) if path.suffix in _OPENERS else content


def newest(files: Iterable[File]) -> list[File]:
    """Keep the last version of every article, and a preprint only if there is no article of its number."""
    best: dict[str, tuple[tuple[bool, int], File]] = {}
    for file in files:
        match = re.search(r"(\d+)-v(\d+)\.xml$", file.path)
        if match:
            rank = ("preprint" not in file.path, int(match[2]))
            if match[1] not in best or rank > best[match[1]][0]:
                best[match[1]] = (rank, file)
    return [file for _, file in best.values()]
