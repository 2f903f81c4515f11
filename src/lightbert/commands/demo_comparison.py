"""The last part of the demo: the bundled model is fine-tuned, and compared with simpler classifiers."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.commands import naive_bayes
from lightbert.commands.demo_sentences import read_examples, write_examples

if TYPE_CHECKING:
    from rich.table import Table

    from lightbert.commands.finetune import FinetuningReport

BUNDLED = "convbert-small-en"
RECIPES: dict[str, dict[str, Any]] = {
    "tiny": {"epochs": 12, "lr": 3e-3, "threads": 1},
    # The upper layers know less about topics (lab/LOG.md).
    "bundled": {"epochs": 16, "lr": 2e-3, "change": {"depth": 1}},
}
"""The settings of both fine-tunings: the run -> its keys, chosen on the dev split. The bundled model takes less than
a minute on two CPU cores."""
_SHOWN_LENGTH = 60
_SHARED: dict[str, Any] = {"batch": 16, "length": 64, "checkpoint_every": 100, "words": False}
# The words of a topic are learned from these examples only, so that the embeddings need the rate of the head.
_POOLED: dict[str, Any] = {"head": {"pool": "mean-max", "init": "random"}, "layer_decay": 1.0}


@dataclass(frozen=True)
class Comparison:
    """Accuracies on sentences about objects that no classifier was trained on, and the fine-tuned model."""

    model: Path
    sizes: dict[str, int]
    """Split -> its number of sentences."""
    labels: int
    accuracy: dict[str, float]
    """Classifier -> its accuracy on the test split, the bundled model first."""
    sentence: str
    """A sentence of the test split to try."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"model": str(self.model), "sentences": self.sizes, "labels": self.labels, "accuracy": self.accuracy}

    def __rich__(self) -> "Table":
        from rich.table import Table

        table = Table(
            title="Which package does a sentence of a docstring document?",
            title_justify="left",
            caption=f"{self.sizes['train']:,} labelled sentences of {self.labels} packages; accuracy on "
            f"{self.sizes['test']:,} sentences about other functions and classes. Sentences that name their package "
            "are left out. The tiny model has read all sentences without labels, in its pre-training.",
            caption_justify="left",
        )
        table.add_column("")
        table.add_column("accuracy", justify="right")
        for name, accuracy in self.accuracy.items():
            table.add_row(name, f"{accuracy:.1%}", style="bold" if accuracy == max(self.accuracy.values()) else "")
        return table


def compare(out: Path, tiny: Path, device: str = "auto") -> "Comparison | FinetuningReport":
    """Fine-tune a layer of the bundled model and a tiny model, and compare them with a bag of words and the majority.

    Returns the report of a fine-tuning that was interrupted.
    """
    from lightbert.commands import evaluate, jobs
    from lightbert.files import make_folder

    examples = read_examples()
    make_folder(out)
    files = write_examples(examples, out)
    accuracy = {}
    first_layer = f"{BUNDLED}, its first layer"
    for run, name, model in (("tiny", "the tiny model above", str(tiny)), ("bundled", first_layer, BUNDLED)):
        data = {"train": str(files["train"]), "dev": str(files["dev"])}
        keys = {**_SHARED, **_POOLED, **RECIPES[run], "device": device}
        trained = jobs.finetune("classify", model=model, data=data, out=str(out / run), **keys)
        if not trained.finished:
            return trained
        report = evaluate.run(evaluate.Config(str(out / run / "final"), data=str(files["test"]), device=device))
        assert isinstance(report, evaluate.EvaluationReport)
        accuracy[f"{name}, fine-tuned"] = report.evaluation.metrics["accuracy"]
    texts = {split: [each.text for each in rows] for split, rows in examples.items()}
    labels = {split: [each.label for each in rows] for split, rows in examples.items()}
    words = naive_bayes.tune(texts["train"], labels["train"], texts["dev"], labels["dev"])
    accuracy["naive Bayes on words, tuned"] = naive_bayes.accuracy(words.predict(texts["test"]), labels["test"])
    [(most_frequent, _)] = Counter(labels["train"]).most_common(1)
    accuracy["the most frequent package"] = labels["test"].count(most_frequent) / len(labels["test"])
    return Comparison(
        model=out / "bundled" / "final",
        sizes={split: len(rows) for split, rows in examples.items()},
        labels=len(set(labels["train"])),
        accuracy=dict(sorted(accuracy.items(), key=lambda each: each[0].startswith(BUNDLED), reverse=True)),
        sentence=min(texts["test"], key=lambda text: abs(len(text) - _SHOWN_LENGTH)),
    )
