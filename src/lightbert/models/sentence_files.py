"""The files with which sentence-transformers describes a sentence encoder: modules.json and those it refers to."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from lightbert.errors import InputError
from lightbert.files import read_json, read_tensors, write_atomic, write_tensors
from lightbert.models.model import Model, add_head
from lightbert.nn.heads import Projection
from lightbert.nn.pooling_settings import POOLS, PROJECTION, Pool, Pooling

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_SIZES = "matryoshka_sizes"
"""Our key of config_sentence_transformers.json, which sentence-transformers ignores."""
# The flags of 1_Pooling/config.json and the modes that they select; newer versions name the mode instead.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_SUPPORTED = f"Transformer, Pooling ({', '.join(POOLS)}), Dense (linear or Tanh) and Normalize, in this order"


def read_sentence_files(model: Model, folder: Path) -> None:
    """Set the pooling of a model that was read from a folder, and for a Dense module its head "vector".

    Without modules.json nothing changes, and, with a warning, if it has modules that are not supported.
    """
    if not (folder / MODULES).is_file():
        return None
    entries = [entry for entry in read_json(folder / MODULES, list) if isinstance(entry, dict)]
    names = [str(entry.get("type", "")).rpartition(".")[2] for entry in entries]
    paths = [_inside(folder, str(entry.get("path", ""))) for entry in entries]
    rest = [name for name in ("Dense", "Normalize") if name in names]
    if names != ["Transformer", "Pooling", *rest]:
        return _warn(folder, f"the modules {', '.join(names) or 'none'}")
    pooling = read_json(paths[1] / _CONFIG)
    modes = _modes(pooling)
    pool = next((pool for pool in POOLS if modes == [pool]), None)
    if pool is None:
        return _warn(folder, f"the pooling {' + '.join(modes) or 'none'}")
    if pooling.get("include_prompt") is False:
        return _warn(folder, "pooling that leaves out the prompt")
    if "Dense" in names and not _read_dense(model, paths[2], pool, folder):
        return None
    model.pooling = Pooling(
        pool, "Normalize" in names, _length(folder, model.positions), "Dense" in names, **_prompts(folder)
    )
    return None


def _inside(folder: Path, path: str) -> Path:
    inside = (folder / path).resolve()
    if not inside.is_relative_to(folder.resolve()):
        raise InputError(f"'{folder / MODULES}' must name folders inside of its folder, got '{inside}'; copy it again")
    return inside


def _read_dense(model: Model, folder: Path, pool: Pool, where: Path) -> bool:
    """Read a Dense module as the head "vector"; False, with a warning, if it can't be computed."""
    config = read_json(folder / _CONFIG)
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    inputs = config.get("module_input_name", "sentence_embedding")
    outputs = config.get("module_output_name") or inputs
    if (
        activation not in ("Tanh", "Identity")
        or config.get("use_residual")
        or (inputs, outputs) != ("sentence_embedding",) * 2
    ):
        _warn(where, f"a Dense module with {json.dumps(config)}")
        return False
    if not (folder / _WEIGHTS).is_file():
        raise InputError(f"'{folder / _WEIGHTS}' not found; save the model again with a newer sentence-transformers")
    tensors = read_tensors(folder / _WEIGHTS)
    weight = tensors.get("linear.weight", torch.zeros(0))
    bias = tensors.get("linear.bias", torch.zeros(weight.shape[:1]))
    if weight.dim() != 2 or weight.shape[1] != model.width or bias.shape != weight.shape[:1]:
        raise InputError(
            f"'{folder / _WEIGHTS}' must have a 'linear.weight' for {model.width} inputs and a 'linear.bias' for its "
            f"outputs, got the shapes {list(weight.shape)} and {list(bias.shape)}; copy it again"
        )
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise InputError(f"'{folder / _WEIGHTS}' must be finite, but contains NaN or infinity; copy it again")
    settings = {"size": len(weight), "pool": pool, **({"activation": "tanh"} if activation == "Tanh" else {})}
    head = add_head(model, PROJECTION, settings, seed=0)
    head.load_state_dict({"output.weight": weight, "output.bias": bias})
    return True


def _length(folder: Path, positions: int) -> int:
    """The maximum number of tokens of a text, which version 6 writes into the tokenizer's file; 0 = the positions."""
    for name, key in ((LENGTH, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        length = read_json(folder / name).get(key) if (folder / name).is_file() else None
        if isinstance(length, int) and 0 < length < (positions or 10**6):
            return length
    return 0


def _prompts(folder: Path) -> dict[str, Any]:
    """Read the prompts and the Matryoshka sizes."""
    if not (folder / PROMPTS).is_file():
        return {}
    content = read_json(folder / PROMPTS)
    prompts, name, sizes = content.get("prompts") or {}, content.get("default_prompt_name"), content.get(_SIZES, [])
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"'prompts' in '{folder / PROMPTS}' must be an object of texts, got {prompts!r}")
    if name is not None and name not in prompts:
        raise InputError(f"'default_prompt_name' in '{folder / PROMPTS}' must be one of 'prompts', got {name!r}")
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise InputError(f"'{_SIZES}' in '{folder / PROMPTS}' must be a list of sizes, got {sizes!r}")
    # sentence-transformers writes empty prompts for "query" and "document".
    used = {key: text for key, text in prompts.items() if text or key == name}
    return {"prompts": used, "default_prompt": name or "", "sizes": tuple(sizes)}


def check_pooling(model: Model) -> None:
    """Check that a model has the head that its pooling requires, with the same pool."""
    pooling = model.pooling
    if pooling is None or not pooling.projection:
        return
    head = next((head for kind, head in model.heads.items() if kind == PROJECTION), None)
    if not isinstance(head, Projection):
        raise InputError(f"pooling.projection requires a model with the head '{PROJECTION}'; add it with add_head")
    if head.pool != pooling.pool:
        raise InputError(f"pooling.pool must be {head.pool!r}, that of the head '{PROJECTION}', got {pooling.pool!r}")


def write_sentence_files(model: Model, folder: Path, *, card: str = "") -> None:
    """Write the files with which sentence-transformers reads a model folder; none if it has no pooling.

    card: the content of README.md; "" = write none.
    """
    check_pooling(model)
    pooling = model.pooling
    if pooling is None:
        return
    kinds = ["Transformer", "Pooling", *["Dense"] * pooling.projection, *["Normalize"] * pooling.normalize]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    flags = {flag: mode == pooling.pool for flag, mode in _FLAGS.items()}
    _write(folder / "1_Pooling" / _CONFIG, {"word_embedding_dimension": model.width, **flags, "include_prompt": True})
    if pooling.projection:
        _write_dense(model, folder / "2_Dense")
    _write(folder / MODULES, modules)
    _write(
        folder / PROMPTS,
        {
            "model_type": "SentenceTransformer",
            "prompts": dict(pooling.prompts),
            "default_prompt_name": pooling.default_prompt or None,
            "similarity_fn_name": "cosine",
            **({_SIZES: list(pooling.sizes)} if pooling.sizes else {}),
        },
    )
    _write(folder / LENGTH, {"max_seq_length": pooling.length or model.positions or None, "do_lower_case": False})
    if card:
        write_atomic(folder / "README.md", card)


def _write_dense(model: Model, folder: Path) -> None:
    output = model.heads[PROJECTION].get_submodule("output")
    weight, bias = output.get_parameter("weight"), output.get_parameter("bias")
    activation = "activation.Tanh" if model.head_settings[PROJECTION].get("activation") == "tanh" else "linear.Identity"
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": f"torch.nn.modules.{activation}",
    }
    folder.mkdir()
    _write(folder / _CONFIG, config)
    tensors = {"linear.weight": weight.detach(), "linear.bias": bias.detach()}
    write_tensors(folder / _WEIGHTS, tensors, metadata={"format": "pt"})


def sentence_card(*, native: bool) -> str:
    """The README.md of a folder for sentence-transformers; native: transformers needs lightbert to read it."""
    before = "import lightbert  # registers the architecture\n" if native else ""
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- lightbert
---

# A sentence encoder of lightbert

```python
{before}from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")  # the folder of this file
vectors = model.encode(["some text", "another one"])
```
`lightbert.load("FOLDER").encode(["some text", "another one"])` returns the same vectors.
"""


def _modes(config: dict[str, Any]) -> list[str]:
    named = config.get("pooling_mode")
    if named is not None:
        return [str(mode) for mode in (named if isinstance(named, list) else [named])]
    # Mean is the default of sentence-transformers.
    return [mode for flag, mode in _FLAGS.items() if config.get(flag, mode == "mean") is True]


def _warn(folder: Path, unsupported: str) -> None:
    warnings.warn(
        f"'{folder}' is a sentence encoder with {unsupported}, which lightbert doesn't support: only the encoder is "
        f"read; supported are {_SUPPORTED}",
        stacklevel=3,
    )


def _write(path: Path, content: Any) -> None:
    write_atomic(path, json.dumps(content, indent=2) + "\n")
