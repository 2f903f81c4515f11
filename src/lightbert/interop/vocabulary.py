"""Read the tokenizer of a Hugging Face folder, from tokenizer.json or vocab.txt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from lightbert import files
from lightbert.errors import InputError
from lightbert.interop.weights import read_json

# The switches of transformers' BertTokenizer with their defaults; None = as `do_lower_case`.
_SWITCHES = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# The lists of further special tokens, in version 5 and in older versions of transformers.
_EXTRA = ("extra_special_tokens", "additional_special_tokens")
_DECODER, _ADDED_FILE = "added_tokens_decoder", "added_tokens.json"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_COPY = "copy the model's tokenizer.json into the folder"


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Read tokenizer.json, else the vocab.txt of the first releases; None if there is neither.

    Truncation and padding are turned off: some published files set a fixed length.
    """
    tokenizer = _open(folder)
    if tokenizer is not None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


def _open(folder: Path) -> Tokenizer | None:
    if (folder / "tokenizer.json").exists():
        return files.read_tokenizer(folder / "tokenizer.json")
    return _from_vocabulary(folder) if (folder / "vocab.txt").exists() else None


def _from_vocabulary(folder: Path) -> Tokenizer:
    """Build BERT's tokenizer from vocab.txt, with the settings and the added tokens that transformers reads."""
    settings = _read_settings(folder)
    added = _added_tokens(folder, settings)
    tokenizer = _wordpiece(folder / "vocab.txt", settings)
    known = {token.content for token in added.values()}
    others = [token for token in _special_tokens(settings) if token.content not in known]
    tokenizer.add_tokens([*(added[index] for index in sorted(added)), *others])
    for index, token in added.items():
        actual = tokenizer.token_to_id(token.content)
        if actual != index:
            raise InputError(
                f"the added token {token.content!r} must have the id {actual}, which follows from vocab.txt and the "
                f"other added tokens, got {index} in {_source(settings)}; {_COPY}"
            )
    return tokenizer


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json, with the special_tokens_map.json of older versions."""
    settings = _read_if_present(folder / "tokenizer_config.json")
    return settings if _DECODER in settings else settings | _read_if_present(folder / "special_tokens_map.json")


def _read_if_present(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _source(settings: dict[str, Any]) -> str:
    """Return the name of what gives the ids of added tokens, for messages."""
    return f"'{_DECODER}' of tokenizer_config.json" if _DECODER in settings else _ADDED_FILE


def _wordpiece(vocabulary: Path, settings: dict[str, Any]) -> Tokenizer:
    """Build the tokenizer without added tokens, except BERT's special tokens."""
    switches = _read_switches(settings)
    special: dict[str, Any] = {key: _token(settings.get(key) or name, key).content for key, name in _SPECIAL.items()}
    try:
        built = BertWordPieceTokenizer(
            str(vocabulary),
            lowercase=switches["do_lower_case"],
            strip_accents=switches["strip_accents"],
            handle_chinese_chars=switches["tokenize_chinese_chars"],
            **special,
        )
    # tokenizers raises nothing more specific.
    except Exception as error:
        raise InputError(f"'{vocabulary}' is not a vocabulary of BERT: {error}; {_COPY}") from error
    return Tokenizer.from_str(built.to_str())


def _read_switches(settings: dict[str, Any]) -> dict[str, Any]:
    switches = {key: settings.get(key, default) for key, default in _SWITCHES.items()}
    for key, value in switches.items():
        default = _SWITCHES[key]
        if not isinstance(value, bool) and (value is not None or default is not None):
            expected = "true or false" if default is not None else "true, false or null"
            raise InputError(f"'{key}' in tokenizer_config.json must be {expected}, got {value!r}")
    return switches


def _special_tokens(settings: dict[str, Any]) -> Iterator[AddedToken]:
    """Yield the special tokens that the settings give."""
    for key in ("bos_token", "eos_token", *_SPECIAL):
        if settings.get(key):
            yield _token(settings[key], key, special=True)
    list_key = next((key for key in _EXTRA if settings.get(key)), "")
    extra = settings.get(list_key, [])
    if not isinstance(extra, list):
        raise InputError(f"'{list_key}' must be a list of tokens, got {extra!r}; {_COPY}")
    for given in extra:
        yield _token(given, list_key, special=True)


def _added_tokens(folder: Path, settings: dict[str, Any]) -> dict[int, AddedToken]:
    """Return the added tokens by id; they may include entries of vocab.txt, such as [MASK]."""
    source = _source(settings)
    special = {*_SPECIAL.values(), *(token.content for token in _special_tokens(settings))}
    if _DECODER not in settings:
        ids = _read_if_present(folder / _ADDED_FILE)
        return {_id(index, source): _token(text, source, special=text in special) for text, index in ids.items()}
    if not isinstance(settings[_DECODER], dict):
        raise InputError(f"{source} must be an object of tokens, got {settings[_DECODER]!r}; {_COPY}")
    added = {_id(index, source): _token(given, source) for index, given in settings[_DECODER].items()}
    for token in added.values():
        token.special = token.special or token.content in special
    return added


def _id(given: Any, source: str) -> int:
    if isinstance(given, bool) or not str(given).isdecimal():
        raise InputError(f"the id of a token in {source} must be an integer >= 0, got {given!r}; {_COPY}")
    return int(given)


def _token(given: Any, source: str, *, special: bool = False) -> AddedToken:
    """Return a token that is given as a text, or as an object with a text and its flags."""
    entries = given if isinstance(given, dict) else {"content": given}
    content, flags = entries.get("content"), {flag: entries[flag] for flag in _FLAGS if flag in entries}
    if not isinstance(content, str) or not content or not all(isinstance(value, bool) for value in flags.values()):
        raise InputError(f"a token in {source} must be a text, or a text with flags, got {given!r}; {_COPY}")
    return AddedToken(content, **(flags | {"special": True} if special else flags))
