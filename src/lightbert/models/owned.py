"""How model folders that lightbert wrote are recognised: saving replaces them, and no others."""

import json
from pathlib import Path

from lightbert.owned_folders import FolderKind

WRITER = {"writer": "lightbert"}
"""An entry of config.json in the layout of Hugging Face, where transformers ignores it."""

_CARD = ("README.md", ".gitattributes")
_SENTENCE_TRANSFORMERS = ("modules.json", "*_config.json", "config_*.json", "1_Pooling/config.json")


def _is_ours(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and (config.get("model_type") == "lightbert" or WRITER.items() <= config.items())


MODEL_FOLDER = FolderKind(
    "a model folder that lightbert wrote",
    ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *_CARD, *_SENTENCE_TRANSFORMERS),
    _is_ours,
)

ANY_FOLDER = FolderKind("a folder", ("*",))
