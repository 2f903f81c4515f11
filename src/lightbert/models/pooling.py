"""How a sentence encoder turns states into a vector, read and written in the files of sentence-transformers."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import read_text, write_atomic
from lightbert.nn.inference import POOLS, Pool

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"

_POOLING_FOLDER, _CONFIG = "1_Pooling", "config.json"
# The flags of 1_Pooling/config.json and the modes that they select; newer versions name the mode instead.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Pooling:
    """The pool over the states of a text, whether vectors are scaled to length 1, and the maximum number of tokens."""

    pool: Pool = "mean"
    normalize: bool = False
    length: int = 0
    """0: the positions of the model."""


def read_pooling(folder: Path) -> Pooling | None:
    """Read modules.json and the files it refers to; None if there is none, or, with a warning, if it is unsupported."""
    if not (folder / MODULES).is_file():
        return None
    entries = [each for each in _read(folder / MODULES, list) if isinstance(each, dict)]
    names = [str(each.get("type", "")).rpartition(".")[2] for each in entries]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        _warn(folder, f"the modules {', '.join(names) or 'none'}")
        return None
    inside = (folder / str(entries[1].get("path", _POOLING_FOLDER))).resolve()
    if not inside.is_relative_to(folder.resolve()):
        raise InputError(f"'{folder / MODULES}' must name folders inside of its folder, got '{inside}'; copy it again")
    modes = _modes(_read(inside / _CONFIG, dict))
    pool = next((pool for pool in POOLS if modes == [pool]), None)
    if pool is None:
        _warn(folder, f"the pooling {' + '.join(modes) or 'none'}")
        return None
    length = _read(folder / LENGTH, dict).get("max_seq_length") if (folder / LENGTH).is_file() else None
    return Pooling(pool, "Normalize" in names, length if isinstance(length, int) and length > 0 else 0)


def write_pooling(pooling: Pooling, folder: Path, width: int) -> None:
    """Write the files with which sentence-transformers reads a model folder."""
    kinds = ("Transformer", "Pooling", *(("Normalize",) if pooling.normalize else ()))
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / _POOLING_FOLDER).mkdir()
    flags = {flag: mode == pooling.pool for flag, mode in _FLAGS.items()}
    _write(folder / _POOLING_FOLDER / _CONFIG, {"word_embedding_dimension": width, **flags, "include_prompt": True})
    _write(folder / MODULES, modules)
    if pooling.length:
        _write(folder / LENGTH, {"max_seq_length": pooling.length, "do_lower_case": False})


def _modes(config: dict[str, Any]) -> list[str]:
    named = config.get("pooling_mode")
    if named is not None:
        return [str(mode) for mode in (named if isinstance(named, list) else [named])]
    # Mean is the default of sentence-transformers.
    return [mode for flag, mode in _FLAGS.items() if config.get(flag, mode == "mean") is True]


def _warn(folder: Path, unsupported: str) -> None:
    warnings.warn(
        f"'{folder}' is a sentence encoder with {unsupported}, which lightbert doesn't support: only the encoder is "
        f"read; supported are Transformer, Pooling ({', '.join(POOLS)}) and Normalize",
        stacklevel=2,
    )


def _read(path: Path, kind: type) -> Any:
    try:
        content = json.loads(read_text(path))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' can't be read as JSON ({error}); copy it again") from error
    if not isinstance(content, kind):
        raise InputError(f"'{path}' must be a JSON {'object' if kind is dict else 'list'}; copy it again")
    return content


def _write(path: Path, content: Any) -> None:
    write_atomic(path, json.dumps(content, indent=2) + "\n")
