"""Tokenizers in the format that transformers reads, and deterministic training: the same text gives the same bytes.

The trainers of the tokenizers library number entries in the order of a randomly seeded hash map and break ties between
equally frequent pieces by these numbers. Here, everything that depends on that order is fixed before training or
sorted afterwards. `train_in_process` trains in another process, because the library aborts or hangs when there is too
little memory.
"""

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import Unigram, WordPiece
from tokenizers.processors import TemplateProcessing

from lightbert import bundled
from lightbert.errors import InputError, describe_memory, is_out_of_memory
from lightbert.files import check_name, read_text, read_tokenizer, write_atomic
from lightbert.processes import ProcessFailedError, Report, call

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


FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"

_SENTENCEPIECE_NAMES = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}


def load(path: str | Path) -> Tokenizer:
    """Load a tokenizer.json, a vocab.txt in BERT's format, a folder with one of them, or that of a bundled model.

    A vocab.txt is treated as lowercase if no entry except the special tokens has a capital letter.
    """
    place = bundled.folder_of(path) if isinstance(path, str) and path in bundled.NAMES else Path(path)
    check_name(place)
    path = _file_in(place) if place.is_dir() else place
    if not path.is_file():
        raise InputError(
            f"tokenizer '{place}' not found; give a tokenizer.json, a vocab.txt, a folder with one, or the name of a "
            f"bundled model ({bundled.NAMES[0]})"
        )
    tokenizer = _read_vocabulary(path) if path.suffix == ".txt" else read_tokenizer(path)
    # Padding and truncation are done when batches are built.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special_names(tokenizer, path)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and the tokenizer_config.json that `AutoTokenizer` requires."""
    pad, unk, cls, sep, mask = special_names(tokenizer, folder)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "unk_token": unk,
        "cls_token": cls,
        "sep_token": sep,
        "mask_token": mask,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    write_atomic(folder / FILE, tokenizer.to_str(pretty=True) + "\n")
    write_atomic(folder / CONFIG, json.dumps(config, indent=1) + "\n")


def is_saved(tokenizer: Tokenizer, folder: Path) -> bool:
    """Return whether the tokenizer in the folder is this one."""
    # Reading can change the last digit of a score, so this one is written and read like the one in the folder.
    return bool(Tokenizer.from_str(tokenizer.to_str()).to_str() == load(folder / FILE).to_str())


def special_names(tokenizer: Tokenizer, path: Path) -> list[str]:
    """Return the tokenizer's names of [PAD], [UNK], [CLS], [SEP] and [MASK], which pre-training requires."""
    names = []
    for name in SPECIALS:
        spellings = (name, _SENTENCEPIECE_NAMES[name])
        known = [spelling for spelling in spellings if tokenizer.token_to_id(spelling) is not None]
        if not known:
            raise InputError(f"the tokenizer '{path}' has no {name} token; add it, or use another tokenizer")
        names.append(known[0])
    return names


def _file_in(folder: Path) -> Path:
    for name in (FILE, "vocab.txt"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"the folder '{folder}' must contain {FILE} or vocab.txt, but has neither")


def _read_vocabulary(path: Path) -> Tokenizer:
    try:
        entries = read_text(path).splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 ({error}); give a tokenizer.json or a vocab.txt") from None
    vocabulary = {entry: index for index, entry in enumerate(entries)}
    if len(vocabulary) != len(entries):
        raise InputError(f"'{path}' has duplicate entries; each line must be a different entry of the vocabulary")
    for name in SPECIALS:
        if name not in vocabulary:
            raise InputError(f"'{path}' must contain a line {name}; give the vocab.txt of a BERT model")
    words = (entry for entry in entries if not (entry.startswith("[") and entry.endswith("]")))
    return wordpiece(vocabulary, lowercase=not any(entry != entry.lower() for entry in words))


_SECONDS_BETWEEN_REPORTS = 0.1


def write_texts(path: Path, texts: Iterable[str]) -> int:
    """Write the texts for `train` to a file and return their number."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps(text, ensure_ascii=False) + "\n")
            count += 1
    return count


def train_in_process(path: Path, model: Model, vocab_size: int, *, lowercase: bool, report: Report) -> Tokenizer:
    """Train a tokenizer on the texts of a file in another process; see `train`.

    report: called with the number of texts read so far, in `PASSES` passes.
    """
    arguments = [str(path), model, vocab_size, lowercase]
    try:
        return Tokenizer.from_str(call(f"{__name__}:train_here", arguments, report=report, environment={}))
    except ProcessFailedError as error:
        raise _explain(error) from error


def train_here(report: Report, path: str, model: Model, vocab_size: int, lowercase: bool) -> str:
    """Train a tokenizer in this process and return its tokenizer.json."""
    with Path(path).open(encoding="utf-8") as file:
        texts = [json.loads(line) for line in file]
    done, reported = 0, time.monotonic()

    def watch(texts: Sequence[str]) -> Iterator[str]:
        nonlocal done, reported
        for text in texts:
            yield text
            done += 1
            if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                report(done)
        report(done)

    return train(texts, model, vocab_size, lowercase=lowercase, watch=watch).to_str()


def _explain(error: ProcessFailedError) -> Exception:
    # A library that aborts for lack of memory doesn't always say why.
    if error.code >= 0 and not is_out_of_memory(RuntimeError(error.printed)):
        return RuntimeError(f"the training of the tokenizer failed:\n{error.printed}")
    how = f"was ended by {signal.Signals(-error.code).name}" if error.code < 0 else "failed"
    return InputError(
        f"the training of the tokenizer {how}: {describe_memory(error.printed)}; use a machine with more memory, or "
        "give a tokenizer with --tokenizer"
    )
