"""Small files in the formats that fine-tuning recipes read, and tiny models to start from."""

from dataclasses import replace
from pathlib import Path

from glue_files import write_glue
from questions import TOKENIZERS, document, question_entry, write
from tiny_tasks import write_reviews

from lightbert.models import PRESETS, build, folder

_SIZES = {"depth": 1, "narrow": 8, "width": 16, "n_heads": 2, "inner": 32, "block_width": 8}
_HEADLESS = ("CoLA",)


def write_model(where: Path, preset: str) -> Path:
    """Save a tiny model of a preset's family with enough positions for every recipe."""
    tokenizer = TOKENIZERS["wordpiece"]
    sizes = {**_SIZES, "vocab": tokenizer.get_vocab_size(), "positions": 512}
    config = PRESETS[preset]
    model = build(replace(config, **{name: size for name, size in sizes.items() if name in vars(config)}), seed=0)
    folder.save(model, where, tokenizer=tokenizer)
    return where


def write_tasks(where: Path) -> dict[str, Path]:
    """Write files of GLUE, SQuAD and CoNLL and a table; returns their folders."""
    reviews = where / "own"
    reviews.mkdir()
    write_reviews(reviews / "train.csv", rows=12)
    return {
        "glue": _write_whole_glue(where / "glue"),
        "squad": _write_squad(where / "squad"),
        "tokens": _write_conll(where / "conll"),
        "own": reviews / "train.csv",
    }


def _write_whole_glue(where: Path) -> Path:
    """Use all rows of every task for training and for evaluation; correlations need several rows."""
    write_glue(where)
    for task in (entry for entry in where.iterdir() if entry.is_dir()):
        known = [path for path in sorted(task.glob("*.tsv")) if path.stem in ("train", "dev")]
        header, rows = "", []
        for path in known:
            lines = path.read_text(encoding="utf-8").splitlines()
            header = "" if task.name in _HEADLESS else lines[0]
            rows += lines if task.name in _HEADLESS else lines[1:]
        for path in (task / "train.tsv", task / "dev.tsv") if known else ():
            path.write_text("\n".join(filter(None, [header, *rows])) + "\n", encoding="utf-8")
    return where


def _write_squad(where: Path) -> Path:
    where.mkdir()
    entries = [question_entry("the cat", ("the mat", 15)), question_entry("it", ("The cat", 0))]
    for split in ("train", "dev"):
        write(where / f"{split}-v1.1.json", document("The cat sat on the mat, and the dog didn't see it.", *entries))
    return where


def _write_conll(where: Path) -> Path:
    where.mkdir()
    for split in ("train", "dev"):
        (where / f"{split}.txt").write_text("The O\ncat B-X\nsat O\n\ndog B-X\nor I-X\ncat I-X\n")
    return where
