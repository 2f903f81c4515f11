"""Replaced-token detection word by word, and a test of it: find the one word that was replaced in each sentence."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from lightbert.analysis.figure import new_figure
from lightbert.data.features import Specials
from lightbert.data.masking import word_parts
from lightbert.errors import InputError
from lightbert.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONT_SIZE = 11
# The advance of DejaVu Sans Mono, which matplotlib ships, in inches.
_CHARACTER = 0.602 * _FONT_SIZE / 72
_LINE = 0.27
_MARGIN = 2  # characters


@dataclass(frozen=True)
class Word:
    """A word of a sentence: its tokens, and the highest probability among them of having been replaced."""

    tokens: tuple[int, ...]
    text: str
    suspicion: float = 0.0


@dataclass(frozen=True)
class CorruptedSentence:
    """A sentence whose word at ``place`` replaces ``original``."""

    words: tuple[Word, ...]
    place: int
    original: str

    @property
    def rank(self) -> int:
        """The rank of the replaced word by suspicion; 1 is the most suspicious."""
        replaced = self.words[self.place].suspicion
        return 1 + sum(word.suspicion > replaced for word in self.words)


class Detector:
    """Scores words with a model that has a replaced-token head and a tokenizer."""

    def __init__(self, model: Model) -> None:
        if "rtd" not in model.heads or model.tokenizer is None:
            raise InputError(
                "the model needs an rtd head and a tokenizer; train one by `lightbert pretrain` with objective=rtd"
            )
        self.model = model.eval()
        self.tokenizer = model.tokenizer
        self.specials = Specials.of(self.tokenizer)
        self._continues = word_parts(self.tokenizer).tolist()

    def words(self, tokens: Iterable[int]) -> tuple[Word, ...]:
        """Join the tokens of a sentence into words."""
        groups: list[list[int]] = []
        for token in map(int, tokens):
            if groups and self._continues[token]:
                groups[-1].append(token)
            else:
                groups.append([token])
        return tuple(Word(tuple(group), self._text(group)) for group in groups)

    def _text(self, tokens: list[int]) -> str:
        pieces = (self.tokenizer.id_to_token(token) or "" for token in tokens)
        return "".join(piece.removeprefix("##").removeprefix("▁") for piece in pieces)

    def score(self, sentences: Sequence[tuple[Word, ...]]) -> list[tuple[Word, ...]]:
        """Return the sentences with the suspicion of each word; each is encoded separately as [CLS] words [SEP]."""
        rows = [[token for word in sentence for token in word.tokens] for sentence in sentences]
        longest = max(map(len, rows)) + 2
        ids = torch.full((len(rows), longest), self.specials.pad)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens) + 2] = torch.tensor([self.specials.cls, *tokens, self.specials.sep])
        mask = torch.arange(longest) < torch.tensor([len(tokens) + 2 for tokens in rows])[:, None]
        with torch.inference_mode():
            probabilities = torch.sigmoid(self.model.heads["rtd"](self.model(ids, mask)))  # [B, T]
        scored = []
        for sentence, row in zip(sentences, probabilities[:, 1:].tolist(), strict=True):
            values = iter(row)
            scored.append(tuple(replace(word, suspicion=max(next(values) for _ in word.tokens)) for word in sentence))
        return scored


def corrupt(sentences: Sequence[tuple[Word, ...]], seed: int = 0) -> list[CorruptedSentence]:
    """Replace one word of each sentence with a word from another sentence; both consist of letters only."""
    choose = random.Random(seed)
    candidates = [word for sentence in sentences for word in sentence if word.text.isalpha()]
    corrupted = []
    for sentence in sentences:
        place = choose.choice([place for place, word in enumerate(sentence) if word.text.isalpha()])
        present = {word.text for word in sentence}
        replacement = choose.choice([word for word in candidates if word.text not in present])
        words = (*sentence[:place], replacement, *sentence[place + 1 :])
        corrupted.append(CorruptedSentence(words, place, sentence[place].text))
    return corrupted


def score_corrupted(detector: Detector, corrupted: Sequence[CorruptedSentence]) -> list[CorruptedSentence]:
    """Return the sentences with the suspicion of each word."""
    scored = detector.score([sentence.words for sentence in corrupted])
    return [replace(sentence, words=words) for sentence, words in zip(corrupted, scored, strict=True)]


def plot_suspicion(sentences: Sequence[CorruptedSentence], title: str) -> "Figure":
    """Draw the words of each sentence above their suspicion in percent; a frame marks the replaced word."""
    lengths = (sum(_columns(word) for word in sentence.words) + len(_note(sentence)) for sentence in sentences)
    columns, lines = max(lengths) + 2 * _MARGIN, 2 * len(sentences) + 2
    figure = new_figure(columns * _CHARACTER, lines * _LINE)
    # The axes fill the figure; data coordinates are columns and lines of text.
    figure.set_layout_engine("none")
    panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    panel.set_axis_off()
    panel.set(xlim=(0, columns), ylim=(lines, 0))
    _write(panel, _MARGIN, 0.9, title, fontsize=_FONT_SIZE - 2)
    for number, sentence in enumerate(sentences):
        _draw_sentence(panel, sentence, line=2 * number + 2)
    return figure


def _draw_sentence(panel: Any, sentence: CorruptedSentence, line: int) -> None:
    from matplotlib.patches import Rectangle

    column = _MARGIN
    for place, word in enumerate(sentence.words):
        colour = (0.85, 0.15, 0.1, word.suspicion)
        edge = "black" if place == sentence.place else "none"
        corner = (column - 0.4, line - 0.45)
        panel.add_patch(Rectangle(corner, len(word.text) + 0.8, 0.9, facecolor=colour, edgecolor=edge))
        _write(panel, column, line, word.text)
        _write(panel, column, line + 0.8, f"{100 * word.suspicion:.0f}", fontsize=_FONT_SIZE - 4, color="grey")
        column += _columns(word)
    _write(panel, column, line, _note(sentence), fontsize=_FONT_SIZE - 2, color="grey")


def _write(panel: Any, column: float, line: float, text: str, **style: Any) -> None:
    # Dollar signs in a text don't start a formula.
    fixed = {"family": "monospace", "va": "center", "parse_math": False}
    panel.text(column, line, text, **{"fontsize": _FONT_SIZE, **fixed, **style})


def _columns(word: Word) -> int:
    """Columns from the start of a word to the start of the next; a percentage of three digits fits below."""
    return max(len(word.text), 2) + 1


def _note(sentence: CorruptedSentence) -> str:
    return f"  was: {sentence.original}"
