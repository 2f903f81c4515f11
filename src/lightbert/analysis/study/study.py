"""The models, texts and settings of an analysis; what they share is computed once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lightbert.analysis.section import NotApplicableError
from lightbert.analysis.study.divergence import comparable_heads
from lightbert.analysis.study.head_statistics import HeadStatistics, head_statistics
from lightbert.analysis.study.observation import Observation, equal_lengths, observe, observe_rows
from lightbert.analysis.study.rows import RowEncoder, Texts
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.progress import progress


@dataclass(frozen=True)
class Subject:
    """A model under analysis: its name in pictures, and the prefix of its metrics."""

    name: str
    model: Model
    prefix: str = ""

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.model.blocks)

    def title(self, text: str) -> str:
        """A title of a panel with the name of the model, if there are several."""
        return f"{self.name}: {text}" if self.name and text else self.name or text


@dataclass(frozen=True)
class Settings:
    """What to show: layers counted from 1 (empty = chosen by the analysis), words, and the mean over heads.

    length: the maximum number of tokens of a text.
    """

    layers: tuple[int, ...] = ()
    mean: bool = False
    words: tuple[str, ...] = ()
    length: int = 512


@dataclass(frozen=True)
class Study:
    """One model, or two side by side, with texts to draw and to compute statistics over."""

    subjects: tuple[Subject, ...]
    texts: Texts = field(default_factory=Texts)
    settings: Settings = field(default_factory=Settings)
    shared_heads: int | None = None
    """With a teacher: the number of heads to compare; 0 = only the mean of all heads. None = without a teacher."""

    def __post_init__(self) -> None:
        depth = min(subject.depth for subject in self.subjects)
        for layer in self.settings.layers:
            if not 1 <= layer <= depth:
                raise InputError(f"layers must be in [1, {depth}], got {layer}")

    def layers(self, subject: Subject, *, default: Sequence[int]) -> list[int]:
        """The layers to show; `default` may count from the end, as -1, and repeat."""
        return [*self.settings.layers] or sorted({each if each > 0 else subject.depth + 1 + each for each in default})

    @cached_property
    def encoders(self) -> tuple[RowEncoder, ...]:
        """The tokenizer of each model, limited to the length that each can read."""
        return tuple(
            RowEncoder(
                each.model.require_tokenizer(),
                min(filter(None, (self.settings.length, *(other.model.positions for other in self.subjects)))),
            )
            for each in self.subjects
        )

    def check_drawn(self, name: str) -> None:
        """Raise an error if there is no text to draw."""
        if not self.texts.drawn:
            raise NotApplicableError(f"the analysis '{name}' requires a text; add --text TEXT or --data FILE")

    def row(self, which: int, text: int) -> list[int]:
        """The ids of a text to draw, for a subject by its index."""
        return self.encoders[which].row(self.texts.drawn[text], truncate=not self.texts.given)

    def observe(self, which: int, text: int) -> Observation:
        """The maps and kernels of a subject for a text to draw. They are large, so that callers don't keep them."""
        ids = self.row(which, text)
        return observe(self.subjects[which].model, ids, self.encoders[which].tokens(ids))

    @cached_property
    def statistics(self) -> tuple[HeadStatistics, ...]:
        """The statistics of the heads of each subject."""
        return tuple(head_statistics(self._observations(which)) for which in range(len(self.subjects)))

    def _observations(self, which: int) -> Iterator[Observation]:
        subject, encoder, texts = self.subjects[which], self.encoders[which], self.texts.measured
        # A line of a file can consist of characters that the tokenizer removes.
        kept = [text for text in texts if not self.texts.data or encoder.pieces(text)]
        rows = [encoder.row(text, truncate=bool(self.texts.data)) for text in kept]
        with progress(f"reading{' with ' * bool(subject.name)}{subject.name}", len(rows), "texts") as bar:
            for batch in equal_lengths(rows):
                for seen in observe_rows(subject.model, batch):
                    yield seen
                    bar.advance()


def teacher_and_student(teacher: Model, student: Model, texts: Texts, settings: Settings) -> Study:
    """A study of two models whose attention maps are compared head by head; one tokenizer is enough."""
    shared = comparable_heads(teacher, student, mean=settings.mean)
    tokenizer = student.tokenizer or teacher.tokenizer
    if tokenizer is None:
        raise InputError("neither model has a tokenizer; add a tokenizer.json to one of the folders")
    for model in (teacher, student):
        model.metadata = replace(model.metadata, tokenizer=tokenizer)
    return Study(
        (Subject("teacher", teacher, "teacher_"), Subject("student", student)), texts, settings, shared_heads=shared
    )
