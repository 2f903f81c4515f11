"""How much a model suspects each word of having been replaced, and whether it finds words planted on purpose."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from lightbert.data.batches.batch import Specials
from lightbert.data.batches.whole_words import word_parts
from lightbert.errors import InputError
from lightbert.models import Model


@dataclass(frozen=True)
class Word:
    """A word of a text: its tokens, and the highest probability among them of not being the text's."""

    tokens: tuple[int, ...]
    text: str
    suspicion: float = 0.0


@dataclass(frozen=True)
class Planted:
    """A sentence in which the word at ``place`` stands for the ``original``."""

    words: tuple[Word, ...]
    place: int
    original: str

    @property
    def rank(self) -> int:
        """1 when no other word is more suspicious than the planted one."""
        planted = self.words[self.place].suspicion
        return 1 + sum(word.suspicion > planted for word in self.words)


class Reader:
    """A model with a replaced-token head and its tokenizer, reading sentences."""

    def __init__(self, model: Model) -> None:
        if "rtd" not in model.heads or model.tokenizer is None:
            raise InputError(
                "the model cannot tell replaced words: it needs an rtd head and a tokenizer, as `lightbert pretrain` "
                'with objective = "rtd" leaves them'
            )
        self.model = model.eval()
        self.tokenizer = model.tokenizer
        self.specials = Specials.of(self.tokenizer)
        self._continues = word_parts(self.tokenizer).tolist()

    def words(self, tokens: Iterable[int]) -> tuple[Word, ...]:
        """Join a sentence's tokens to words."""
        groups: list[list[int]] = []
        for token in map(int, tokens):
            if groups and self._continues[token]:
                groups[-1].append(token)
            else:
                groups.append([token])
        return tuple(Word(tuple(group), self._text(group)) for group in groups)

    def suspect(self, sentences: Sequence[tuple[Word, ...]]) -> list[tuple[Word, ...]]:
        """Read each sentence by itself, between [CLS] and [SEP], and say how suspicious its words are."""
        rows = [[token for word in sentence for token in word.tokens] for sentence in sentences]
        longest = max(map(len, rows)) + 2
        ids = torch.full((len(rows), longest), self.specials.pad)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens) + 2] = torch.tensor([self.specials.cls, *tokens, self.specials.sep])
        mask = torch.arange(longest) < torch.tensor([len(tokens) + 2 for tokens in rows])[:, None]
        with torch.inference_mode():
            chances = torch.sigmoid(self.model.heads["rtd"](self.model(ids, mask)))  # [B, T]
        return [_judged(sentence, row) for sentence, row in zip(sentences, chances[:, 1:].tolist(), strict=True)]

    def _text(self, tokens: list[int]) -> str:
        pieces = (self.tokenizer.id_to_token(token) or "" for token in tokens)
        return "".join(piece.removeprefix("##").removeprefix("▁") for piece in pieces)


def plant(sentences: Sequence[tuple[Word, ...]], seed: int = 0) -> list[Planted]:
    """Replace one word of each sentence by a word from the other sentences; only words made of letters take part."""
    choose = random.Random(seed)
    strangers = [word for sentence in sentences for word in sentence if word.text.isalpha()]
    planted = []
    for sentence in sentences:
        places = [place for place, word in enumerate(sentence) if word.text.isalpha()]
        place = choose.choice(places)
        there = {word.text for word in sentence}
        stranger = choose.choice([word for word in strangers if word.text not in there])
        words = (*sentence[:place], stranger, *sentence[place + 1 :])
        planted.append(Planted(words, place, sentence[place].text))
    return planted


def find(reader: Reader, planted: Sequence[Planted]) -> list[Planted]:
    """Let a model read the sentences."""
    read = reader.suspect([each.words for each in planted])
    return [replace(each, words=words) for each, words in zip(planted, read, strict=True)]


def _judged(words: tuple[Word, ...], chances: list[float]) -> tuple[Word, ...]:
    judged, start = [], 0
    for word in words:
        end = start + len(word.tokens)
        judged.append(replace(word, suspicion=max(chances[start:end])))
        start = end
    return tuple(judged)
