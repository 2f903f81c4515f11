"""How model folders that lightbert wrote are recognised: saving replaces them, and no others."""

import json
from pathlib import Path
from typing import Any

from lightbert.files import FolderKind, read_text

WRITER = {"writer": "lightbert"}
"""An entry of config.json in the layout of Hugging Face, where transformers ignores it."""

_CARD = ("README.md", ".gitattributes")
_SENTENCE_TRANSFORMERS = (
    "modules.json",
    "*_config.json",
    "config_*.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
)


MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", *_CARD, *_SENTENCE_TRANSFORMERS)


def config_of(folder: Path) -> dict[str, Any]:
    """Return the content of config.json, or an empty dictionary if it can't be read."""
    try:
        config = json.loads(read_text(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _is_ours(folder: Path) -> bool:
    config = config_of(folder)
    return config.get("model_type") == "lightbert" or WRITER.items() <= config.items()


MODEL_FOLDER = FolderKind("a model folder that lightbert wrote", ("model.safetensors", *MODEL_FILES), _is_ours)

ANY_FOLDER = FolderKind("a folder", ("*",))
