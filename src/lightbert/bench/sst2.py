"""What a comparison with transformers needs: SST-2 in GLUE's files, and one model in two layouts."""

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
    """Examples and their tokens."""

    examples: list[Example]
    features: Features

    def tokens(self) -> list[list[int]]:
        """The rows as lists."""
        tokens, starts = self.features.tokens.tolist(), self.features.starts.tolist()
        return [tokens[start:end] for start, end in pairwise(starts)]

    def labels(self) -> list[int]:
        """1 where the sentence is positive."""
        return [int(example.label == "positive") for example in self.examples]


@dataclass(frozen=True)
class Material:
    """The same examples as files and as rows of tokens, and the same weights for both sides."""

    data: Path
    ours: Path
    theirs: Path
    kind: Kind[Example]
    trained: Rows
    predicted: Rows


def prepare(
    where: Path, data: str, *, tokenizer: str, model: str, trained: int, predicted: int, length: int
) -> Material:
    """Take the first examples of SST-2's training set to train on and to predict (0 = all), and draw a model's weights.

    Weights are random: speed does not depend on them. Without a tokenizer one is trained on the sentences.
    """
    task = open_glue("sst2", data)
    examples = task.examples("train")
    to_train, to_predict = examples[: trained or None], examples[: predicted or None]
    if len(to_train) < trained:
        raise InputError(f"'{data}' has {len(examples):,} examples, not {trained:,}; take fewer, or 0 for all")
    _write(where / "glue" / "SST-2" / "train.tsv", to_train)
    # Ours is judged after training like any run; by few examples, because the Trainer is not.
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
