"""Replaced-token detection word by word, and a test of it: find the one word that was replaced in each sentence."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from lightbert.data.features import Specials
from lightbert.data.masking import word_parts
from lightbert.errors import InputError
from lightbert.models import Model


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
        return [
            _with_suspicion(sentence, row)
            for sentence, row in zip(sentences, probabilities[:, 1:].tolist(), strict=True)
        ]

    def _text(self, tokens: list[int]) -> str:
        pieces = (self.tokenizer.id_to_token(token) or "" for token in tokens)
        return "".join(piece.removeprefix("##").removeprefix("▁") for piece in pieces)


def corrupt(sentences: Sequence[tuple[Word, ...]], seed: int = 0) -> list[CorruptedSentence]:
    """Replace one word of each sentence with a word from another sentence; both consist of letters only."""
    choose = random.Random(seed)
    candidates = [word for sentence in sentences for word in sentence if word.text.isalpha()]
    corrupted = []
    for sentence in sentences:
        places = [place for place, word in enumerate(sentence) if word.text.isalpha()]
        place = choose.choice(places)
        present = {word.text for word in sentence}
        replacement = choose.choice([word for word in candidates if word.text not in present])
        words = (*sentence[:place], replacement, *sentence[place + 1 :])
        corrupted.append(CorruptedSentence(words, place, sentence[place].text))
    return corrupted


def score_corrupted(detector: Detector, corrupted: Sequence[CorruptedSentence]) -> list[CorruptedSentence]:
    """Return the sentences with the suspicion of each word."""
    scored = detector.score([each.words for each in corrupted])
    return [replace(each, words=words) for each, words in zip(corrupted, scored, strict=True)]


def _with_suspicion(words: tuple[Word, ...], probabilities: list[float]) -> tuple[Word, ...]:
    scored, start = [], 0
    for word in words:
        end = start + len(word.tokens)
        scored.append(replace(word, suspicion=max(probabilities[start:end])))
        start = end
    return tuple(scored)
