"""The report of `lightbert demo`: metrics on held-out text, and replaced words in sentences."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lightbert.analysis.suspicion import CorruptedSentence
    from lightbert.commands.demo_comparison import Comparison

SHOWN = 6
"""Number of sentences printed; the metrics are over all of them."""

# Lowest suspicion of each style. Probabilities are low, because few words of the training text are replaced.
_STYLES = ((0.6, "bold white on red"), (0.35, "bold red"), (0.2, "yellow"), (0.0, ""))


@dataclass(frozen=True)
class DemoReport:
    """A trained model and its metrics."""

    out: Path
    parameters: int
    documents: int
    tokens: int
    vocab: int
    step: int
    held_out: dict[str, float]
    sentences: "tuple[CorruptedSentence, ...]"
    trained_before: bool
    comparison: "Comparison | None" = None
    """The fine-tuned bundled model; None if it wasn't fine-tuned."""
    skipped: str = ""
    """Why it wasn't."""

    @property
    def baseline(self) -> float:
        """The accuracy of predicting "original" for every token."""
        return 1.0 - self.held_out["replaced"]

    @property
    def found(self) -> float:
        """The fraction of sentences whose replaced word has the highest suspicion."""
        return sum(each.rank == 1 for each in self.sentences) / len(self.sentences)

    @property
    def guessed(self) -> float:
        """The expected fraction for a random choice of word."""
        return sum(1 / len(each.words) for each in self.sentences) / len(self.sentences)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "out": str(self.out),
            "model": str(self.out / "final"),
            "picture": str(self._picture) if self._picture else None,
            "parameters": self.parameters,
            "corpus": {"documents": self.documents, "tokens": self.tokens, "vocab": self.vocab},
            "step": self.step,
            "trained_before": self.trained_before,
            "metrics": {
                **self.held_out,
                "baseline_accuracy": self.baseline,
                "planted_found": self.found,
                "planted_guessed": self.guessed,
            },
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "sentences": [_plain(each) for each in self.sentences],
        }

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        before = (
            [f"{self.out} has been trained before; --again trains it from scratch", ""] if self.trained_before else []
        )
        compared = [part for part in (self.comparison, self.skipped) if part]
        after = [*compared, ""] if compared else []
        return Group(*before, self._summary(), "", self._numbers(), "", *self._words(), *after, self._next())

    @property
    def _picture(self) -> Path | None:
        return self._existing("loss.png")

    def _existing(self, name: str) -> Path | None:
        """Pictures are missing where matplotlib is."""
        return self.out / name if (self.out / name).is_file() else None

    def _summary(self) -> str:
        text = (
            f"{self.tokens:,} tokens of {self.documents:,} documented modules and classes, {self.vocab:,} word pieces"
        )
        model = (
            f"a ConvBERT of {self.parameters / 1e6:.1f} M parameters after {self.step:,} steps: {self.out / 'final'}"
        )
        drawn = {"loss curve": self._picture, "words below": self._existing("words.svg")}
        pictures = [f"{what}: {path}" for what, path in drawn.items() if path]
        return "\n".join((text, model, *pictures))

    def _numbers(self) -> "Table":
        from rich.table import Table

        table = Table(
            title="Detection of the words that the generator replaced in held-out text",
            title_justify="left",
            caption="The generator samples at a high temperature; plausible samples take far more text to detect.",
            caption_justify="left",
        )
        table.add_column("")
        for column in ("accuracy", "precision", "recall"):
            table.add_column(column, justify="right")
        table.add_row('always "original"', f"{self.baseline:.2%}", "", f"{0:.1%}")
        figures = (self.held_out[f"rtd_{name}"] for name in ("accuracy", "precision", "recall"))
        accuracy, precision, recall = figures
        table.add_row("the model", f"{accuracy:.2%}", f"{precision:.1%}", f"{recall:.1%}", style="bold")
        return table

    def _words(self) -> "list[RenderableType]":
        from rich.text import Text

        lines: list[RenderableType] = [
            f"One word was replaced in each of {len(self.sentences)} held-out sentences. It has the highest "
            f"suspicion in {self.found:.0%} of them; a random choice would find {self.guessed:.0%}.",
            Text("Suspicion in percent; the replaced word is underlined:", style="dim"),
            "",
        ]
        for each in self.sentences[:SHOWN]:
            replacement = each.words[each.place].text
            rank = f"rank {each.rank} of {len(each.words)}"
            lines += [_sentence(each), Text(f"{replacement} replaces {each.original}: {rank}", style="dim"), ""]
        return lines

    def _next(self) -> "Table":
        from rich.table import Table

        steps = Table(title="What to run next, on your own text", title_justify="left", show_header=False, box=None)
        for line, why in NEXT:
            steps.add_row(line, why)
        steps.add_row(f"lightbert serve {shlex.quote(str(self.out / 'final'))}", "open the model in a browser")
        if self.comparison is not None:
            model = shlex.quote(str(self.comparison.model))
            steps.add_row(f"lightbert serve {model}", "open the fine-tuned model in a browser")
            predict = f"lightbert predict {model} {shlex.quote(self.comparison.sentence)}"
            steps.add_row(predict, "which package does it document?")
        return steps


NEXT = (
    ("lightbert finetune classify model=convbert-small-en data.train=my.csv out=runs/topics", "texts with labels"),
    ("lightbert prepare 'my/*.txt' --out runs/mine/data --tokenizer convbert-small-en", "tokenize text"),
    (
        "lightbert pretrain adapt data=runs/mine/data out=runs/mine",
        "adapt that model to it, 20 minutes on a CPU",
    ),
    ("lightbert pretrain convbert-small-rtd data=… out=…", "the paper's model, on a GPU"),
    ("lightbert demo --zoo", "the sizes of all models, and a forward pass of each family"),
)


def _sentence(corrupted: "CorruptedSentence") -> "Table":
    """The words, with their suspicion below."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    styles = [next(style for least, style in _STYLES if word.suspicion >= least) for word in corrupted.words]
    styles[corrupted.place] += " underline"
    table.add_row(*(Text(word.text, style) for word, style in zip(corrupted.words, styles, strict=True)))
    table.add_row(*(Text(f"{100 * word.suspicion:.0f}", "dim") for word in corrupted.words))
    return table


def _plain(corrupted: "CorruptedSentence") -> dict[str, Any]:
    return {
        "words": [word.text for word in corrupted.words],
        "suspicion": [round(word.suspicion, 4) for word in corrupted.words],
        "planted": corrupted.place,
        "original": corrupted.original,
        "rank": corrupted.rank,
    }
