"""Read the tokenizer of a Hugging Face folder, from tokenizer.json or vocab.txt."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from lightbert.errors import InputError
from lightbert.interop.weights import read_json


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
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        # tokenizers raises nothing more specific.
        except Exception as error:
            raise InputError(
                f"'{folder / 'tokenizer.json'}' is not a valid tokenizer: {error}; copy it again"
            ) from error
    if (folder / "vocab.txt").exists():
        config = folder / "tokenizer_config.json"
        lower = read_json(config).get("do_lower_case", True) if config.exists() else True
        return Tokenizer.from_str(BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lower).to_str())
    return None
