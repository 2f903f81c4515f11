"""Fixtures: a corpus of a few thousand words, and small files for every task."""

import random
from pathlib import Path

import pytest

from lightbert.data.preparation import Settings, prepare


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    choose = random.Random(0)
    words = [first + second for first in ("ka", "lo", "mi", "nu") for second in ("ra", "se", "ti", "vo")]
    lines = (" ".join(choose.choices(words, k=choose.randint(3, 9))) for _ in range(400))
    text = "".join(f"{line}\n\n" if number % 5 == 4 else f"{line}\n" for number, line in enumerate(lines))
    (folder / "text.txt").write_text(text)
    prepare(Settings(sources=(str(folder / "text.txt"),), vocab_size=64, held_out=0.1), folder / "data", workers=1)
    return folder / "data"
