"""Read the tokenizer of a Hugging Face folder, from tokenizer.json or vocab.txt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from lightbert import files
from lightbert.errors import InputError

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
    if (folder / "tokenizer.json").exists():
        tokenizer = files.read_tokenizer(folder / "tokenizer.json")
    elif (folder / "vocab.txt").exists():
        tokenizer = _from_vocabulary(folder)
    else:
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_vocabulary(folder: Path) -> Tokenizer:
    """Build BERT's tokenizer from vocab.txt, with the settings and the added tokens that transformers reads."""
    settings = _read_if_present(folder / "tokenizer_config.json")
    if _DECODER not in settings:
        # Older versions have a file for special tokens.
        settings |= _read_if_present(folder / "special_tokens_map.json")
    # What gives the ids of added tokens, for messages.
    source = f"'{_DECODER}' of tokenizer_config.json" if _DECODER in settings else _ADDED_FILE
    special = [*_special_tokens(settings)]
    added = _added_tokens(folder, settings, source, {*_SPECIAL.values(), *(token.content for token in special)})
    tokenizer = _wordpiece(folder / "vocab.txt", settings)
    known = {token.content for token in added.values()}
    others = [token for token in special if token.content not in known]
    tokenizer.add_tokens([*(added[index] for index in sorted(added)), *others])
    for index, token in added.items():
        actual = tokenizer.token_to_id(token.content)
        if actual != index:
            raise InputError(
                f"the added token {token.content!r} must have the id {actual}, which follows from vocab.txt and the "
                f"other added tokens, got {index} in {source}; {_COPY}"
            )
    return tokenizer


def _read_if_present(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = files.read_json(path) if path.exists() else {}
    return content


def _wordpiece(vocabulary: Path, settings: dict[str, Any]) -> Tokenizer:
    """Build the tokenizer without added tokens, except BERT's special tokens."""
    switches: dict[str, Any] = {key: settings.get(key, default) for key, default in _SWITCHES.items()}
    for key, value in switches.items():
        default = _SWITCHES[key]
        if not isinstance(value, bool) and (value is not None or default is not None):
            expected = "true or false" if default is not None else "true, false or null"
            raise InputError(f"'{key}' in tokenizer_config.json must be {expected}, got {value!r}")
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


def _special_tokens(settings: dict[str, Any]) -> Iterator[AddedToken]:
    """Yield the special tokens that the settings give."""
    for key in ("bos_token", "eos_token", *_SPECIAL):
        if settings.get(key):
            yield _token(settings[key], key, special=True)
    list_key = next((key for key in _EXTRA if settings.get(key)), "")
    extra = settings.get(list_key, [])
    if not isinstance(extra, list):
        raise InputError(f"'{list_key}' must be a list of tokens, got {extra!r}; {_COPY}")
    for token in extra:
        yield _token(token, list_key, special=True)


def _added_tokens(folder: Path, settings: dict[str, Any], source: str, special: set[str]) -> dict[int, AddedToken]:
    """Return the added tokens by id; they may include entries of vocab.txt, such as [MASK]."""
    if _DECODER not in settings:
        ids = _read_if_present(folder / _ADDED_FILE)
        return {_id(index, source): _token(text, source, special=text in special) for text, index in ids.items()}
    if not isinstance(settings[_DECODER], dict):
        raise InputError(f"{source} must be an object of tokens, got {settings[_DECODER]!r}; {_COPY}")
    added = {_id(index, source): _token(token, source) for index, token in settings[_DECODER].items()}
    for token in added.values():
        token.special = token.special or token.content in special
    return added


def _id(value: Any, source: str) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise InputError(f"the id of a token in {source} must be an integer >= 0, got {value!r}; {_COPY}")
    return int(value)


def _token(value: Any, source: str, *, special: bool = False) -> AddedToken:
    """Return a token written as a text, or as an object with a text and its flags."""
    entries = value if isinstance(value, dict) else {"content": value}
    content, flags = entries.get("content"), {flag: entries[flag] for flag in _FLAGS if flag in entries}
    if not isinstance(content, str) or not content or not all(isinstance(flag, bool) for flag in flags.values()):
        raise InputError(f"a token in {source} must be a text, or a text with flags, got {value!r}; {_COPY}")
    return AddedToken(content, **(flags | {"special": True} if special else flags))
