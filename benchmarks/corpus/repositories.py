"""Reads the files of bare git repositories, without a work tree."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class File(NamedTuple):
    """A file of a commit: its path and the id of its content."""

    path: str
    blob: str


def list_files(repository: Path, commit: str, pattern: str) -> list[File]:
    """Return the files of a commit whose path matches a regular expression."""
    command = ["git", "-C", str(repository), "ls-tree", "-r", "-z", commit]
    entries = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "replace").split("\0")
    matches = re.compile(pattern).search
    found = [entry.split("\t", 1) for entry in entries if entry]
    return [File(path, head.split()[2]) for head, path in found if matches(path) and " blob " in head]


def read_files(repository: Path, files: Iterable[File]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of files; those that a partial clone lacks are left out."""
    command = ["git", "-C", str(repository), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for file in files:
            reader.stdin.write(file.blob.encode() + b"\n")
            reader.stdin.flush()
            head = reader.stdout.readline().split()
            if len(head) == 3:  # "missing" has two fields
                content = reader.stdout.read(int(head[2]))
                reader.stdout.read(1)
                yield file.path, content
        reader.stdin.close()
