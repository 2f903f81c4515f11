"""What `lightbert demo` has to show for its minutes: numbers on held-out text, and suspicion word by word."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lightbert.analysis.suspicion import Planted

SHOWN = 6
"""Sentences that a person sees; the figures are about all of them."""

# From the least suspicion on: probabilities are low, since few words of the training text were replaced.
_STYLES = ((0.6, "bold white on red"), (0.35, "bold red"), (0.2, "yellow"), (0.0, ""))


@dataclass(frozen=True)
class Demonstration:
    """A trained model, measured."""

    out: Path
    parameters: int
    documents: int
    tokens: int
    vocab: int
    step: int
    held_out: dict[str, float]
    sentences: "tuple[Planted, ...]"
    trained_before: bool

    @property
    def baseline(self) -> float:
        """The accuracy of calling every token original."""
        return 1.0 - self.held_out["replaced"]

    @property
    def found(self) -> float:
        """The share of sentences whose planted word is the most suspicious."""
        return sum(each.rank == 1 for each in self.sentences) / len(self.sentences)

    @property
    def guessed(self) -> float:
        """The share that pointing at any word would find."""
        return sum(1 / len(each.words) for each in self.sentences) / len(self.sentences)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
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
            "sentences": [_plain(each) for each in self.sentences],
        }

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        before = [f"{self.out} was trained before; --again trains it anew", ""] if self.trained_before else []
        return Group(*before, self._summary(), "", self._numbers(), "", *self._words(), self._next())

    @property
    def _picture(self) -> Path | None:
        picture = self.out / "loss.png"
        return picture if picture.is_file() else None

    def _summary(self) -> str:
        text = (
            f"{self.tokens:,} tokens of {self.documents:,} documented modules and classes, {self.vocab:,} word pieces"
        )
        model = (
            f"a ConvBERT of {self.parameters / 1e6:.1f} M parameters after {self.step:,} steps: {self.out / 'final'}"
        )
        curve = f"\nits loss curve: {self._picture}" if self._picture else ""
        return f"{text}\n{model}{curve}"

    def _numbers(self) -> "Table":
        from rich.table import Table

        table = Table(
            title="Which words of held-out text did the generator replace?",
            title_justify="left",
            caption="It draws unlikely words: likely ones take far more text to learn.",
            caption_justify="left",
        )
        table.add_column("")
        for column in ("accuracy", "precision", "recall"):
            table.add_column(column, justify="right")
        table.add_row('always answer "none"', f"{self.baseline:.2%}", "", f"{0:.1%}")
        figures = (self.held_out[f"rtd_{name}"] for name in ("accuracy", "precision", "recall"))
        accuracy, precision, recall = figures
        table.add_row("the model", f"{accuracy:.2%}", f"{precision:.1%}", f"{recall:.1%}", style="bold")
        return table

    def _words(self) -> "list[RenderableType]":
        from rich.text import Text

        lines: list[RenderableType] = [
            f"One word of each of {len(self.sentences)} held-out sentences replaced: the model suspects it most in "
            f"{self.found:.0%} of them (pointing anywhere would in {self.guessed:.0%}).",
            Text("Suspicion in percent, the replaced word underlined:", style="dim"),
            "",
        ]
        for each in self.sentences[:SHOWN]:
            planted = each.words[each.place].text
            verdict = "suspected most" if each.rank == 1 else f"number {each.rank} of {len(each.words)} suspects"
            lines += [_sentence(each), Text(f"{planted} stands for {each.original}: {verdict}", style="dim"), ""]
        return lines

    def _next(self) -> "Table":
        from rich.table import Table

        steps = Table(title="What to run next, on your own text", title_justify="left", show_header=False, box=None)
        for line, why in NEXT:
            steps.add_row(line, why)
        return steps


NEXT = (
    ("lightbert prepare 'my/*.txt' --out runs/mine/data --vocab-size 8192", "text to tokens"),
    ("lightbert pretrain tiny-rtd data=runs/mine/data out=runs/mine", "minutes on a CPU"),
    ("lightbert pretrain convbert-small-rtd data=… out=… compile=blocks", "the paper's model, on a GPU"),
    ("lightbert demo --zoo", "every model there is, counted and run"),
)


def _sentence(planted: "Planted") -> "Table":
    """Words above their suspicion."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    styles = [next(style for least, style in _STYLES if word.suspicion >= least) for word in planted.words]
    styles[planted.place] += " underline"
    table.add_row(*(Text(word.text, style) for word, style in zip(planted.words, styles, strict=True)))
    table.add_row(*(Text(f"{100 * word.suspicion:.0f}", "dim") for word in planted.words))
    return table


def _plain(planted: "Planted") -> dict[str, Any]:
    return {
        "words": [word.text for word in planted.words],
        "suspicion": [round(word.suspicion, 4) for word in planted.words],
        "planted": planted.place,
        "original": planted.original,
        "rank": planted.rank,
    }
