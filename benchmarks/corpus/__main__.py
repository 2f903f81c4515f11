"""Make the pre-training corpus: extract, clean, decontaminate, mix and prepare.

    python -m benchmarks.corpus --mirrors MIRRORS --data DATA --out OUT --mixture part-01

MIRRORS has the bare git directories of the repositories in sources.toml, as OWNER+NAME/repo; DATA the local texts,
GLUE, SQuAD and BERT's vocabulary. Sources that are absent are named and left out. OUT gets text/ (a file per source),
survey/, MIXTURE.text/ (what is prepared), MIXTURE/ (the folder that pretrain reads) and MIXTURE.json (words, licences
and what was removed), from which benchmarks.corpus.page writes docs/results/corpus.md. Files that exist are kept.
"""

import argparse
import functools
import json
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.cleaning import Decision, Survey, decide, survey
from benchmarks.corpus.evaluation_texts import EvaluationIndex, read_sets
from benchmarks.corpus.extraction import Source, extract, mirror, read_sources
from benchmarks.corpus.mixture import draw, texts
from lightbert.data.preparation import Settings, prepare

_HERE = Path(__file__).parent
_FILE_BYTES = 400_000_000


def main() -> None:
    """Run all steps that are not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mirrors", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--mixture", default="part-01", help="a table [mixtures.NAME] of sources.toml")
    parser.add_argument("--sources", type=Path, default=_HERE / "sources.toml")
    parser.add_argument("--evaluation", type=Path, default=_HERE / "evaluation.toml")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tokenizer", default="bert-base-uncased-vocab.txt", help="relative to --data")
    options = parser.parse_args()

    limits = tomllib.loads(options.sources.read_text("utf-8"))["mixtures"][options.mixture]
    wanted = [source for source in read_sources(options.sources) if source.group in limits]
    sources = [source for source in wanted if _is_here(source, options.mirrors, options.data)]
    paths = [options.out / "text" / f"{source.name}.txt" for source in sources]
    surveys = [options.out / "survey" / f"{source.name}.npz" for source in sources]
    for folder in ("text", "survey", f"{options.mixture}.text"):
        (options.out / folder).mkdir(parents=True, exist_ok=True)
    vocabulary = options.data / options.tokenizer
    extraction = functools.partial(_extract, options.mirrors, options.data, vocabulary)
    _in_parallel(extraction, zip(sources, paths, strict=True), options.workers)
    evaluation_sets, absent = read_sets(options.evaluation, options.mirrors, options.data)
    index = EvaluationIndex(evaluation_sets)
    _in_parallel(functools.partial(_survey, index), zip(paths, surveys, strict=True), options.workers)

    read = [_load(path) for path in surveys]
    decisions = decide(read, index.names)
    manifest = _mix(sources, paths, read, decisions, limits, options.out / f"{options.mixture}.text", options.seed)
    manifest["evaluation sets that were absent"] = absent
    (options.out / f"{options.mixture}.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    settings = Settings(
        sources=(str(options.out / f"{options.mixture}.text"),),
        tokenizer=str(vocabulary),
        sentences="split",
        held_out=0.005,
    )
    prepare(settings, options.out / options.mixture, options.workers)


def _is_here(source: Source, mirrors: Path, data: Path) -> bool:
    place = mirror(source.repository, mirrors) if source.repository else data / source.paths
    if not place.exists():
        print(f"left out: {source.name}, because {place} does not exist")
    return place.exists()


def _in_parallel(function: Callable[[Any], None], jobs: Iterable[tuple[Any, Path]], workers: int) -> None:
    with Pool(workers) as pool:
        for _ in pool.imap_unordered(function, [job for job in jobs if not job[1].exists()]):
            pass


def _extract(mirrors: Path, data: Path, vocabulary: Path, job: tuple[Source, Path]) -> None:
    extract(job[0], mirrors, data, vocabulary, job[1])


def _survey(index: EvaluationIndex, job: tuple[Path, Path]) -> None:
    arrays = survey(job[0], index)._asdict()
    partial = job[1].with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.rename(job[1])


def _load(path: Path) -> Survey:
    with np.load(path) as arrays:
        return Survey(**arrays)


def _mix(
    sources: list[Source],
    paths: list[Path],
    surveys: list[Survey],
    decisions: list[Decision],
    limits: dict[str, float],
    out: Path,
    seed: int,
) -> dict[str, Any]:
    """Write the text of a mixture and return the manifest."""
    keeps = [decision.keep for decision in decisions]
    words = {
        group: int(limit * 1e6) for group, limit in limits.items() if group in {source.group for source in sources}
    }
    drawn = draw(surveys, keeps, [source.group for source in sources], words, seed)
    total = int(drawn.words.sum())
    rows = []
    for number, (source, record, decision) in enumerate(zip(sources, surveys, decisions, strict=True)):
        used = int(drawn.words[drawn.files == number].sum())
        counts = decision._asdict() | {"keep": int((record.paragraph_words * decision.keep).sum())}
        row = {"words": int(record.paragraph_words.sum()), **counts, "used": used, "share": round(used / total, 5)}
        rows.append(asdict(source) | row)
    size, number, file = 0, 0, (out / "00.txt").open("wb")
    for text in texts(paths, surveys, keeps, drawn):
        if size > _FILE_BYTES:
            file.close()
            size, number = 0, number + 1
            file = (out / f"{number:02d}.txt").open("wb")
        size += file.write(text + b"\n\n")
    file.close()
    return {"words": total, "pieces": len(drawn.files), "seed": seed, "limits": limits, "sources": rows}


if __name__ == "__main__":
    main()
