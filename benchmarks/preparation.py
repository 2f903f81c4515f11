"""`prepare` compared with a minimal loop over the tokenizers library, on the same text and cores.

    python -m benchmarks.preparation [SOURCE …] [--tokenizer PATH] [--workers N] [--megabytes 32] [--rounds 3]

The loop has the text in memory, encodes it in batches with the library's threads and counts the ids. `prepare` does all
its work in each round: it starts processes, reads, splits, hashes and encodes the file, and writes shards to disk.
Rounds alternate, and medians are compared.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from benchmarks.pages import run_main
from benchmarks.timing import medians
from lightbert.data import sources, tokenizer
from lightbert.data.preparation import Settings, prepare
from lightbert.data.sources import ReadOptions

_BATCH = 1000


@dataclass(frozen=True)
class Comparison:
    """Median tokens per second of both, and their ratio."""

    tokens: int
    workers: int
    rounds: int
    prepare: float
    bare: float
    ratio: float

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens, {self.workers} cores, median of {self.rounds} rounds: "
            f"prepare {self.prepare:,.0f} tokens/s, bare loop {self.bare:,.0f} tokens/s, ratio {self.ratio:.2f}"
        )


def compare(texts: Sequence[str], tokenizer_path: str | Path, workers: int, rounds: int) -> Comparison:
    """Encode the documents both ways, alternating for `rounds` rounds, and check that the token counts are equal.

    The library fixes its number of threads at the first use in a process, so call this once per process.
    """
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    lines = [line for text in texts for line in text.splitlines()]
    counts: set[int] = set()

    def rate(measured: tuple[int, float]) -> float:
        counts.add(measured[0])
        return measured[0] / measured[1]

    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder, "corpus.txt"), Path(folder, "out")
        corpus.write_text("\n\n".join(texts), encoding="utf-8")
        candidates = {
            "prepare": lambda _: rate(_prepare(corpus, tokenizer_path, workers, out)),
            "bare loop": lambda _: rate(_bare_loop(lines, tokenizer_path)),
        }
        fast, bare = medians("preparation", candidates, rounds).values()
    if len(counts) > 1:
        raise AssertionError(f"prepare and the bare loop count different tokens: {counts}")
    return Comparison(counts.pop(), workers, rounds, fast, bare, fast / bare)


def _prepare(corpus: Path, tokenizer_path: str | Path, workers: int, out: Path) -> tuple[int, float]:
    settings = Settings(sources=(str(corpus),), tokenizer=str(tokenizer_path), held_out=0.0)
    start = time.perf_counter()
    result = prepare(settings, out, workers, again=True)
    return sum(shard.tokens for shard in result.manifest.shards), time.perf_counter() - start


def _bare_loop(lines: list[str], tokenizer_path: str | Path) -> tuple[int, float]:
    encoder = tokenizer.load(tokenizer_path)
    encoder.encode_special_tokens = True
    start = time.perf_counter()
    tokens = 0
    for first in range(0, len(lines), _BATCH):
        for encoding in encoder.encode_batch(lines[first : first + _BATCH], add_special_tokens=False):
            tokens += len(encoding.ids)
    return tokens, time.perf_counter() - start


def _first(documents: Iterable[tuple[str, int]], characters: int) -> Iterator[str]:
    for text, _ in documents:
        if characters <= 0:
            return
        characters -= len(text)
        yield text


def main() -> None:
    """Run the comparison with the options of the command line, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=["docstrings"])
    parser.add_argument("--tokenizer", help="a tokenizer.json or vocab.txt; default: train WordPiece")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--megabytes", type=float, default=32.0, help="amount of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = sources.find(arguments.sources)
    everything = chain.from_iterable(sources.documents(source, ReadOptions(), arguments.workers) for source in found)
    texts = list(_first(everything, int(arguments.megabytes * 1e6)))
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.tokenizer or folder
        if arguments.tokenizer is None:
            tokenizer.save(tokenizer.train(texts, "wordpiece", 30522), Path(folder))
        result = compare(texts, path, arguments.workers, arguments.rounds)
    print(json.dumps({"metrics": asdict(result)}) if arguments.json else result)


if __name__ == "__main__":
    run_main(main)
