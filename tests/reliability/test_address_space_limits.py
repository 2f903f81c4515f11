"""`prepare` under any limit on its address space (`ulimit -v`): the same bytes as without a limit, or one sentence."""

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems don't limit the address space")

LIMITS = [
    *range(120_000, 200_000, 10_000),
    *range(200_000, 400_000, 20_000),
    *range(400_000, 600_000, 50_000),
    *range(600_000, 1_000_001, 100_000),
]
"""In KiB."""

MEGABYTES = {"wordpiece": 7.8, "unigram": 1.2}
"""Of text; the training of a Unigram tokenizer takes much longer."""

# A process that replaces itself, so that the limit holds from its start.
LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); "
    "os.execv(sys.executable, [sys.executable, '-m', 'lightbert', *sys.argv[2:]])"
)


def prepare(text: Path, out: Path, *options: str, limit: int | None = None) -> "subprocess.CompletedProcess[str]":
    command = ["prepare", str(text), "--out", str(out), "--workers", "2", *options]
    start = ["-m", "lightbert"] if limit is None else ["-c", LIMITED, str(limit * 1024)]
    return subprocess.run([sys.executable, *start, *command], capture_output=True, text=True, timeout=1800, check=False)


def lines(characters: float) -> Iterator[str]:
    """Lines of words whose frequencies are those of a natural language; a blank line after every eighth."""
    draw = random.Random(0)
    syllables = [first + second for first in "bcdfghklmnprst" for second in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 5))) for _ in range(30_000)]
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    written = 0
    while written < characters:
        for _ in range(8):
            line = " ".join(draw.choices(words, cum_weights=weights, k=12))
            written += len(line) + 1
            yield line
        yield ""


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def check(ended: "subprocess.CompletedProcess[str]", out: Path, expected: dict[str, bytes]) -> None:
    printed = [line for line in ended.stderr.splitlines() if not line.startswith(("reading", "training", "encoding"))]
    if ended.returncode == 0:
        assert content(out) == expected
        assert printed == []
    else:
        assert (ended.returncode, len(printed)) == (1, 1), ended.stderr
        assert printed[0].startswith("lightbert: ")
        assert "ulimit -v" in printed[0]
        assert not out.exists()
        assert not list(out.parent.glob(".*"))


@pytest.fixture(scope="module", params=["wordpiece", "unigram"])
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp(request.param)
    text = folder / "text.txt"
    text.write_text("\n".join(lines(MEGABYTES[request.param] * 1e6)))
    ended = prepare(text, folder / "out", "--model", request.param, "--vocab-size", "4000")
    assert ended.returncode == 0, ended.stderr
    return request.param, text, content(folder / "out")


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("limit", LIMITS)
def test_any_limit_gives_the_same_bytes_or_one_sentence(
    reference: tuple[str, Path, dict[str, bytes]], limit: int, tmp_path: Path
) -> None:
    model, text, expected = reference
    ended = prepare(text, tmp_path / "out", "--model", model, "--vocab-size", "4000", limit=limit)
    check(ended, tmp_path / "out", expected)
    # Limits that are far above what is needed must not be errors.
    assert ended.returncode == 0 or limit < 500_000
    print(f"{model} {limit:,} KiB: exit code {ended.returncode}")


@pytest.mark.parametrize("limit", [60_000, 100_000])
def test_a_limit_that_is_too_small_for_the_libraries_gives_one_sentence(limit: int, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines(10_000)))
    ended = prepare(text, tmp_path / "out", "--vocab-size", "100", limit=limit)
    assert ended.returncode == 1
    check(ended, tmp_path / "out", {})
