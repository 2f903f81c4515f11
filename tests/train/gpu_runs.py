"""Runs for the proofs on a GPU, on a model that uses every kernel; on a CPU a tiny one, to check the proofs."""

import random
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

from tiny_runs import recipe_of, records, train

from lightbert.data.preparation import Settings, prepare
from lightbert.nn.fused import install
from lightbert.ops.backend import Backend, using
from lightbert.train.settings import Recipe

_SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti")


def write_long_documents(where: Path, documents: int = 300, *, held_out: float = 0.05) -> Path:
    """Prepare documents of about 500 words, so that rows of 512 tokens are full; each word has a likely successor."""
    choose = random.Random(0)
    words = [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES]

    def line() -> str:
        at = choose.randrange(512)
        chain = [at := (at * 5 + choose.choice((1, 1, 1, 7))) % 512 for _ in range(choose.randint(6, 12))]
        return " ".join(words[number] for number in chain)

    text = "\n\n".join("\n".join(line() for _ in range(60)) for _ in range(documents))
    where.mkdir(parents=True)
    (where / "text.txt").write_text(text)
    prepare(Settings(sources=(str(where / "text.txt"),), vocab_size=600, held_out=held_out), where / "data", workers=1)
    return where


def proof_recipe(corpus: Path, out: Path, device: str, **changes: Any) -> Recipe:
    """Replaced-token detection; on a GPU with two blocks of ConvBERT-small."""
    sizes: dict[str, Any] = {"device": device, "optimizer": {"bias_correction": True}}
    if device == "cuda":
        sizes |= {"model": "convbert-small", "change": {"depth": 2}, "generator": 0.25, "batch": 32, "length": 128}
        sizes |= {"steps": 200, "checkpoint_every": 50, "evaluate_every": 100, "log_every": 50, "workers": 2}
    else:
        sizes |= {"model": "convbert-tiny", "change": {"depth": 1, "width": 32, "narrow": 16, "inner": 32}}
    return recipe_of(corpus, out, **sizes | changes)


def mean_losses(recipe: Recipe, backend: Backend | None, over: int = 100) -> list[dict[str, float]]:
    """Train by one backend of the ops, None for their own choice; return the means of the losses over runs of steps."""
    with ExitStack() as stack:
        if backend:
            stack.enter_context(using(backend))
            # Without a GPU, kernels are installed as on one.
            stack.enter_context(mock.patch("lightbert.models.model.install_on_gpu", install))
        train(recipe)
    lines = records(Path(recipe.out))
    parts = [lines[at : at + over] for at in range(0, len(lines), over)]
    return [{name: fmean(line[name] for line in part) for name in ("mlm_loss", "rtd_loss")} for part in parts]
