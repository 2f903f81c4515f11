"""Loading and saving tokenizers, in the format that transformers reads."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from lightbert import bundled
from lightbert.data.corpus.vocabulary import SPECIALS, wordpiece
from lightbert.errors import InputError
from lightbert.files import check_name, write_atomic

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"

_SENTENCEPIECE_NAMES = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}


def load(path: str | Path) -> Tokenizer:
    """Load a tokenizer.json, a vocab.txt in BERT's format, a folder with one of them, or that of a bundled model.

    A vocab.txt is treated as lowercase if no entry except the special tokens has a capital letter.
    """
    given = bundled.folder_of(path) if isinstance(path, str) and path in bundled.NAMES else Path(path)
    check_name(given)
    path = _file_in(given) if given.is_dir() else given
    if not path.is_file():
        raise InputError(
            f"tokenizer '{given}' not found; give a tokenizer.json, a vocab.txt, a folder with one, or the name of a "
            f"bundled model ({bundled.NAMES[0]})"
        )
    try:
        tokenizer = _read_vocabulary(path) if path.suffix == ".txt" else Tokenizer.from_file(str(path))
    except InputError:
        raise
    # The tokenizers library raises plain Exceptions.
    except Exception as error:
        raise InputError(f"'{path}' is not a tokenizer ({error}); give a tokenizer.json or a vocab.txt") from error
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
        known = [each for each in (name, _SENTENCEPIECE_NAMES[name]) if tokenizer.token_to_id(each) is not None]
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
    entries = path.read_text(encoding="utf-8").splitlines()
    vocabulary = {entry: index for index, entry in enumerate(entries)}
    if len(vocabulary) != len(entries):
        raise InputError(f"'{path}' has duplicate entries; each line must be a different entry of the vocabulary")
    for name in SPECIALS:
        if name not in vocabulary:
            raise InputError(f"'{path}' must contain a line {name}; give the vocab.txt of a BERT model")
    words = (entry for entry in entries if not (entry.startswith("[") and entry.endswith("]")))
    return wordpiece(vocabulary, lowercase=not any(entry != entry.lower() for entry in words))
