"""What the analyses of models share: models, texts, settings, and the maps and kernels of a model for a text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightbert.analysis.report import NotApplicableError
from lightbert.data.features import Specials
from lightbert.data.sources import ReadOptions, documents, find
from lightbert.data.text_files import check_decoded
from lightbert.errors import InputError
from lightbert.interop.load import load
from lightbert.models import Model
from lightbert.nn.attention import Attention
from lightbert.nn.record import Record
from lightbert.objectives.distill.pair import check_pair, shared_heads
from lightbert.progress import progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_ROWS = 16
_MAX_PAIRS = 1 << 15
"""Pairs of tokens per batch: each needs a number per layer and head, so that long texts are read one by one."""
_LONGEST_FACT = 400


@dataclass(frozen=True)
class Texts:
    """Texts from the command line (`typed`), which must fit, and from files (`data`), which are truncated to fit."""

    typed: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> tuple[str, ...]:
        """The texts to draw: the typed ones, otherwise the first of the data."""
        return self.typed or self.data[:1]

    @property
    def measured(self) -> tuple[str, ...]:
        """The texts to compute statistics over: the data, otherwise the typed ones."""
        return self.data or self.typed


def read_texts(typed: Sequence[str], data: str, *, column: str = "text", limit: int = 1000) -> Texts:
    """Collect texts; of `data`, a file or folder with one text per line or record, the first `limit`."""
    for text in typed:
        if not text.strip():
            raise InputError(f"the text {text!r} has no tokens; give a sentence")
    if not data:
        return Texts(tuple(typed))
    options = ReadOptions(text=column, documents="line")
    texts = (text for source in find([data]) for text, _ in documents(source, options) if text.strip())
    read = list(islice(texts, limit + 1))
    if not read:
        raise InputError(f"'{data}' has no texts; give a file with one text per line")
    notes = (f"The statistics cover the first {limit:,} texts of '{data}'; raise --max-texts for more.",)
    return Texts(tuple(typed), tuple(read[:limit]), notes if len(read) > limit else ())


class RowEncoder:
    """Encodes texts as [CLS] text [SEP] with at most `longest` tokens; 0 = any number."""

    def __init__(self, tokenizer: "Tokenizer", longest: int) -> None:
        from tokenizers import Tokenizer as _Tokenizer

        # A copy, because the tokenizer of a model may be configured to truncate and pad.
        self.tokenizer = _Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.longest = longest
        self._specials = Specials.of(self.tokenizer)

    def pieces(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        check_decoded(text)
        return [*self.tokenizer.encode(text, add_special_tokens=False).ids]

    def row(self, text: str, *, truncate: bool = False) -> list[int]:
        """The ids of a text with special tokens; too long a text is truncated or raises an error."""
        pieces = self.pieces(text)
        if not pieces:
            raise InputError(f"the text {text!r} has no tokens; give a sentence")
        if truncate and self.longest:
            pieces = pieces[: self.longest - 2]
        ids = [self._specials.cls, *pieces, self._specials.sep]
        if 0 < self.longest < len(ids):
            raise InputError(
                f"the text must have at most {self.longest} tokens, got {len(ids)}; give a shorter one, or raise "
                "--length as far as the model allows"
            )
        return ids

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokens of ids, to label plots."""
        return tuple(self.tokenizer.id_to_token(token) or "" for token in ids)


@dataclass(frozen=True)
class Observation:
    """The attention maps and dynamic kernels of a model for one text."""

    tokens: tuple[str, ...]
    logs: tuple[Tensor, ...]
    """The logarithms of the attention maps of each layer [H, T, T], which keep the precision of small weights.
    Convolution heads have none."""
    kernels: tuple[Tensor, ...]
    """The dynamic kernels of each layer [H, T, K], each a distribution; empty without dynamic convolutions."""

    def maps(self, layer: int) -> Tensor:
        """The attention maps of a layer, counted from 1: [H, T, T]; each row sums to one."""
        return self.logs[layer - 1].exp()

    def mean_map(self) -> Tensor:
        """The mean over layers and heads: [T, T] (ConvBERT Fig. 2)."""
        return torch.stack([logs.exp().mean(dim=0) for logs in self.logs]).mean(dim=0)


@torch.inference_mode()
def observe_rows(model: Model, rows: Sequence[Sequence[int]]) -> list[Observation]:
    """Run a model on rows of equal length, on the CPU; there is no padding, which released ConvBERTs read."""
    record = Record(states=None, attention=None, kernels=[], scores=[])
    model.eval()(torch.tensor([list(ids) for ids in rows]), record=record)
    scores, kernels = record.scores or [], record.kernels or []
    if scores and scores[-1].isnan().any():
        raise InputError(
            "the attention of the model is not finite: its training has diverged; train it with a lower lr"
        )
    return [
        Observation(
            (),
            tuple(torch.log_softmax(layer[row].float(), dim=-1) for layer in scores),
            tuple(layer[row].float().transpose(0, 1) for layer in kernels),
        )
        for row in range(len(rows))
    ]


def equal_lengths(rows: Iterable[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Group rows into batches of equal length, whose maps fit into memory; the order changes."""
    for length, group in groupby(sorted(rows, key=len), key=len):
        while batch := list(islice(group, max(1, min(_MAX_ROWS, _MAX_PAIRS // length**2)))):
            yield batch


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
    shared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Results that several analyses share."""

    def __post_init__(self) -> None:
        depth = min(subject.depth for subject in self.subjects)
        for layer in self.settings.layers:
            if not 1 <= layer <= depth:
                raise InputError(f"layers must be in [1, {depth}], got {layer}")

    def layers(self, subject: Subject, default: Sequence[int] = ()) -> list[int]:
        """The layers to show; `default` may count from the end, as -1, and repeat; without it, all layers."""
        if self.settings.layers:
            return [*self.settings.layers]
        every = range(1, subject.depth + 1)
        return sorted({layer if layer > 0 else every[layer] for layer in default or every})

    @cached_property
    def encoders(self) -> tuple[RowEncoder, ...]:
        """The tokenizer of each model, limited to the length that all of them can read."""
        lengths = (self.settings.length, *(subject.model.positions for subject in self.subjects))
        longest = min(filter(None, lengths))
        return tuple(RowEncoder(subject.model.require_tokenizer(), longest) for subject in self.subjects)

    def check_drawn(self, name: str) -> None:
        """Raise an error if there is no text to draw."""
        if not self.texts.drawn:
            raise NotApplicableError(f"the analysis '{name}' requires a text; add --text TEXT or --data FILE")

    def check_maps(self, name: str) -> None:
        """Raise an error if a layer of a model has no attention maps."""
        for subject in self.subjects:
            for block in subject.model.blocks:
                mixer = block.get_submodule("mixer")
                if not isinstance(mixer, Attention):
                    part = f"{subject.name or 'the model'} has {type(mixer).__name__}"
                    raise NotApplicableError(f"the analysis '{name}' requires attention in every layer, but {part}")

    def row(self, which: int, text: int) -> list[int]:
        """The ids of a text to draw, for a subject by its index."""
        return self.encoders[which].row(self.texts.drawn[text], truncate=not self.texts.typed)

    def observe(self, which: int, text: int) -> Observation:
        """The maps and kernels of a subject for a text to draw. They are large, so that callers don't keep them."""
        ids = self.row(which, text)
        [observation] = observe_rows(self.subjects[which].model, [ids])
        return replace(observation, tokens=self.encoders[which].tokens(ids))

    def observations(self, which: int) -> Iterator[Observation]:
        """The maps and kernels of a subject for each text to compute statistics over."""
        subject, encoder, texts = self.subjects[which], self.encoders[which], self.texts.measured
        # A line of a file can consist of characters that the tokenizer removes.
        kept = [text for text in texts if not self.texts.data or encoder.pieces(text)]
        rows = [encoder.row(text, truncate=bool(self.texts.data)) for text in kept]
        with progress(f"reading{' with ' * bool(subject.name)}{subject.name}", len(rows), "texts") as bar:
            for batch in equal_lengths(rows):
                for observation in observe_rows(subject.model, batch):
                    yield observation
                    bar.advance()


def open_study(model: str, texts: Texts, settings: Settings, *, teacher: str = "", compare: str = "") -> Study:
    """A study of a model by name; with a teacher, whose maps are compared, or with another model side by side."""
    if teacher:
        return teacher_and_student(load(teacher), load(model), texts, settings)
    if not compare:
        return Study((Subject("", load(model)),), texts, settings)
    first, second = short_name(model), short_name(compare)
    if first == second:
        first, second = model, f"{compare} (2)" if model == compare else compare
    return Study((Subject(first, load(model)), Subject(second, load(compare), "other_")), texts, settings)


def teacher_and_student(teacher: Model, student: Model, texts: Texts, settings: Settings) -> Study:
    """A study of two models whose attention maps are compared head by head; one tokenizer is enough.

    Compared are the heads that attention transfer compares: the first ones, without convolution heads.
    """
    check_pair(teacher, student, None)
    if len(teacher.blocks) != len(student.blocks):
        raise InputError(
            f"teacher and student must have the same number of layers, got {len(teacher.blocks)} and "
            f"{len(student.blocks)}; give models of equal depth, or use --compare"
        )
    shared = shared_heads(teacher, student)
    if not shared and not settings.mean:
        raise InputError(
            f"teacher and student must have the same number of heads, got {teacher.config.n_heads} and "
            f"{student.config.n_heads}; compare the mean over heads with --mean, or use --compare"
        )
    tokenizer = student.tokenizer or teacher.tokenizer
    if tokenizer is None:
        raise InputError("neither model has a tokenizer; add a tokenizer.json to one of the folders")
    for model in (teacher, student):
        model.metadata = replace(model.metadata, tokenizer=tokenizer)
    subjects = (Subject("teacher", teacher, "teacher_"), Subject("student", student))
    return Study(subjects, texts, settings, shared_heads=shared)


def describe(study: Study) -> dict[str, str]:
    """The models and the texts to draw, in words."""
    facts = {}
    for subject in study.subjects:
        model = subject.model
        parameters = sum(weight.numel() for weight in model.parameters())
        family = type(model.config).__name__
        facts[subject.name or "model"] = (
            f"{family}, {subject.depth} layers, width {model.width}, {parameters:,} parameters"
        )
    for number, text in enumerate(study.texts.drawn, start=1):
        name = f"text {number}" if len(study.texts.drawn) > 1 else "text"
        facts[name] = text if len(text) <= _LONGEST_FACT else f"{text[:_LONGEST_FACT]}…"
    return facts


def short_name(model: str) -> str:
    """The name of a folder; its parent's too if it is called "final"."""
    parts = Path(model).parts
    if not parts:
        return model
    return "/".join(parts[-2:]) if parts[-1] == "final" else parts[-1]
