"""Deterministic tokenizer training: the same text gives the same bytes.

The trainers of the tokenizers library number entries in the order of a randomly seeded hash map and break ties between
equally frequent pieces by these numbers. Here, everything that depends on that order is fixed before training or
sorted afterwards.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import Unigram, WordPiece
from tokenizers.processors import TemplateProcessing

from lightbert.errors import InputError

Model = Literal["wordpiece", "unigram"]

PASSES: dict[Model, int] = {"wordpiece": 2, "unigram": 1}
"""How often the training of a model iterates over the texts."""

Watch = Callable[[Sequence[str]], Iterator[str]]

PAD, UNK, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

MAX_WORD_CHARACTERS = 100
_LONG_CHUNK = re.compile(rf"\S{{{MAX_WORD_CHARACTERS + 1},}}")
_LONG_PART = re.compile(r"(\S{1000})(?=\S)")
_MIN_VOCAB_SIZE = 64
_CONTINUATION = "##"
_MAX_CHARACTERS = 1000
# The trainer assigns uncovered characters scores that differ by this step, in the order of its hash map.
_UNCOVERED_STEP = 1e-4


def check_vocab_size(size: int) -> None:
    """Check that a vocabulary of this size has entries besides the special tokens and the letters."""
    if size < _MIN_VOCAB_SIZE:
        raise InputError(f"vocab_size must be >= {_MIN_VOCAB_SIZE}, got {size}")


def train(
    texts: Sequence[str], model: Model, vocab_size: int, *, lowercase: bool = True, watch: Watch = iter
) -> Tokenizer:
    """Train a WordPiece tokenizer like BERT's, or a Unigram tokenizer as in the composite paper.

    `vocab_size` includes the five special tokens. A small corpus can give fewer entries.
    watch: iterates over the texts, `PASSES[model]` times, to observe the progress.
    """
    check_vocab_size(vocab_size)
    if not any(text and not text.isspace() for text in texts):
        raise InputError("training a tokenizer requires text, but the sources have none; check the sources")
    return (_train_wordpiece if model == "wordpiece" else _train_unigram)(texts, vocab_size, lowercase, watch)


def wordpiece(vocabulary: dict[str, int], *, lowercase: bool) -> Tokenizer:
    """Create BERT's tokenizer from a vocabulary, which must contain the special tokens."""
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNK, max_input_chars_per_word=MAX_WORD_CHARACTERS))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUATION)
    return _with_specials(tokenizer)


def unigram(pieces: list[tuple[str, float]], *, lowercase: bool) -> Tokenizer:
    """Create ALBERT's tokenizer from SentencePiece pieces: NFKD, no accents, single spaces, `▁` before each word."""
    tokenizer = Tokenizer(Unigram(pieces, unk_id=SPECIALS.index(UNK), byte_fallback=False))
    steps = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        *([normalizers.Lowercase()] if lowercase else []),
        # A literal ▁ would be read as the start of a word.
        normalizers.Replace(Regex(r"[\s▁]+"), " "),
        normalizers.Strip(),
    ]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    return _with_specials(tokenizer)


def _with_specials(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (CLS, SEP)],
    )
    return tokenizer


def _train_wordpiece(texts: Sequence[str], vocab_size: int, lowercase: bool, watch: Watch) -> Tokenizer:
    tokenizer = wordpiece({name: index for index, name in enumerate(SPECIALS)}, lowercase=lowercase)
    # Longer words become [UNK], and the trainer needs time quadratic in the length of a word.
    texts = [_LONG_CHUNK.sub(lambda chunk: _short_words(chunk[0], tokenizer), text) for text in texts]
    first, inner = _characters(watch(texts), tokenizer)
    counts = first + inner
    # Each character may need two entries, and at least half of the vocabulary should be longer pieces.
    most = min(_MAX_CHARACTERS, vocab_size // 4)
    alphabet = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:most])
    # The trainer numbers special tokens in the given order, so no character is left for it to number randomly.
    fixed = [*SPECIALS, *alphabet, *(_CONTINUATION + character for character in alphabet if inner[character])]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=_CONTINUATION,
        show_progress=False,
    )
    tokenizer.train_from_iterator(watch(texts), trainer)
    return wordpiece(_sorted_by_id(tokenizer.get_vocab(with_added_tokens=True)), lowercase=lowercase)


def _short_words(chunk: str, tokenizer: Tokenizer) -> str:
    """Return the words of a text without spaces that the tokenizer doesn't replace by [UNK] for their length."""
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(chunk))
    return " ".join(word for word, _ in words if len(word) <= MAX_WORD_CHARACTERS)


def _characters(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[Counter[str], Counter[str]]:
    """Count the characters that start a word, and those inside words."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
    first: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(chunk)):
            first[word[0]] += count
            for character in word[1:]:
                inner[character] += count
    return first, inner


def _sorted_by_id(vocabulary: dict[str, int]) -> dict[str, int]:
    return {piece: index for index, piece in enumerate(sorted(vocabulary, key=vocabulary.__getitem__))}


def _train_unigram(texts: Sequence[str], vocab_size: int, lowercase: bool, watch: Watch) -> Tokenizer:
    tokenizer = unigram([(name, 0.0) for name in SPECIALS], lowercase=lowercase)
    # No word becomes [UNK] for its length; parts of long ones keep the time of the trainer linear.
    texts = [_LONG_PART.sub(r"\1 ", text) for text in texts]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIALS), unk_token=UNK, show_progress=False
    )
    tokenizer.train_from_iterator(watch(texts), trainer)
    scores = dict(json.loads(tokenizer.to_str())["model"]["vocab"])
    pieces = _stable_scores({piece: score for piece, score in scores.items() if piece not in SPECIALS})
    return unigram([*((name, 0.0) for name in SPECIALS), *pieces], lowercase=lowercase)


def _stable_scores(scores: dict[str, float]) -> list[tuple[str, float]]:
    """Round the scores, whose last digits depend on the summation order; give uncovered characters equal scores."""
    ordered = sorted(scores, key=scores.__getitem__)
    uncovered = 1
    while (
        uncovered < len(ordered) and scores[ordered[uncovered]] - scores[ordered[uncovered - 1]] < 1.5 * _UNCOVERED_STEP
    ):
        uncovered += 1
    same = {piece: scores[ordered[uncovered - 1]] for piece in ordered[:uncovered] if len(piece) == 1}
    rounded = {piece: round(score, 6) for piece, score in (scores | same).items()}
    return sorted(rounded.items(), key=lambda item: (-item[1], item[0]))
