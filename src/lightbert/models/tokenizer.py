"""Read and write the tokenizer of a model folder: tokenizer.json, and tokenizer_config.json for transformers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lightbert import files
from lightbert.errors import InputError
from lightbert.files import write_atomic

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def write_tokenizer(tokenizer: "Tokenizer", folder: Path, positions: int) -> None:
    """Write tokenizer.json and tokenizer_config.json; `positions` is the maximum number of tokens, 0 if unlimited."""
    known = {f"{role}_token": token for role, token in _SPECIAL.items() if tokenizer.token_to_id(token) is not None}
    config: dict[str, str | int] = {"tokenizer_class": "PreTrainedTokenizerFast", **known}
    if positions:
        config["model_max_length"] = positions
    write_atomic(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_atomic(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


def read_tokenizer(folder: Path) -> "Tokenizer | None":
    """Read the tokenizer.json of a folder; None if there is none."""
    path = folder / "tokenizer.json"
    return files.read_tokenizer(path) if path.exists() else None


def check_ids(tokenizer: "Tokenizer | None", vocab: int, where: Path) -> None:
    """Check that every id of the tokenizer has a row in the model's word table."""
    highest = max(tokenizer.get_vocab().values(), default=0) if tokenizer is not None else 0
    if highest >= vocab:
        raise InputError(
            f"the tokenizer of '{where}' has the id {highest}, but the model has {vocab} entries; "
            "use the tokenizer that the model was trained with"
        )
