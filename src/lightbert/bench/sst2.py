"""The inputs of the comparison with transformers: SST-2, and one model in two layouts."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.data.corpus import tokenizer as tokenizers
from lightbert.data.corpus import vocabulary
from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import describe
from lightbert.interop.names import find
from lightbert.models import build, folder
from lightbert.tasks.datasets.glue import open_glue
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.texts import TextEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DEV = 8


@dataclass(frozen=True)
class Rows:
    """Examples and their token ids."""

    examples: list[Example]
    features: Features

    def tokens(self) -> list[list[int]]:
        """The token ids of each example."""
        tokens, starts = self.features.tokens.tolist(), self.features.starts.tolist()
        return [tokens[start:end] for start, end in pairwise(starts)]

    def labels(self) -> list[int]:
        """1 for positive, 0 for negative sentences."""
        return [int(example.label == "positive") for example in self.examples]


@dataclass(frozen=True)
class Material:
    """The same examples as files and as token ids, and the same weights for both libraries."""

    data: Path
    ours: Path
    theirs: Path
    kind: Kind[Example]
    trained: Rows
    predicted: Rows


def prepare(
    where: Path, data: str, *, tokenizer: str, model: str, trained: int, predicted: int, length: int
) -> Material:
    """Write the first examples of SST-2's training set (0: all) and a model with random weights, in both layouts.

    Speed doesn't depend on the weights. Without a tokenizer, one is trained on the sentences.
    """
    task = open_glue("sst2", data)
    examples = task.examples("train")
    to_train, to_predict = examples[: trained or None], examples[: predicted or None]
    if len(to_train) < trained:
        raise InputError(
            f"examples must be <= {len(examples):,}, the size of '{data}', got {trained:,}; give 0 for all"
        )
    _write(where / "glue" / "SST-2" / "train.tsv", to_train)
    # A fine-tuning run evaluates on the dev set; it is small because the Trainer doesn't evaluate.
    _write(where / "glue" / "SST-2" / "dev.tsv", to_train[:_DEV])
    encoder = _tokenizer(tokenizer, examples)
    head = {"classify": {"labels": 2, "hidden": "gelu"}}
    config = replace(describe(find(model)).config, vocab=encoder.get_vocab_size())
    network = build(config, heads=head, seed=0)
    network.tokenizer, network.labels = encoder, ("negative", "positive")
    folder.save(network, where / "ours")
    huggingface.write(network, where / "theirs")
    texts = TextEncoder(encoder, length)
    rows = [Rows(chosen, task.kind.features(chosen, texts)) for chosen in (to_train, to_predict)]
    return Material(where / "glue", where / "ours", where / "theirs", task.kind, *rows)


def _write(path: Path, examples: list[Example]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{example.text}\t{int(example.label == 'positive')}\n" for example in examples)
    path.write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")


def _tokenizer(path: str, examples: list[Example]) -> "Tokenizer":
    if path:
        return tokenizers.load(path)
    return vocabulary.train([example.text for example in examples], "wordpiece", 30522)
