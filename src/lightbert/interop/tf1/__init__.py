"""Read the original TensorFlow 1 checkpoints of ELECTRA, ConvBERT and MobileBERT."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightbert.errors import InputError, unknown
from lightbert.interop.families import Settings
from lightbert.interop.tf1 import electra, mobilebert
from lightbert.interop.tf1.checkpoint import Checkpoint, TensorFlowCheckpoint, model_variables
from lightbert.interop.vocabulary import read_tokenizer
from lightbert.interop.weights import read_json
from lightbert.models import Model, build
from lightbert.models.folder import fill

__all__ = ["read_checkpoint", "read_tf1"]


def read_tf1(
    prefix: str | Path, *, part: str = "discriminator", config: str | Path | Mapping[str, Any] | None = None
) -> Model:
    """Read a checkpoint with the heads it was pre-trained with. Requires tensorflow.

    prefix: the path of the checkpoint's files without `.index`; a `vocab.txt` in the same folder becomes the tokenizer.
    part: "discriminator" or "generator" of ELECTRA or ConvBERT; MobileBERT has no generator.
    config: the release's JSON config, as a path or a mapping, for settings that the shapes don't determine. The
    published models need none. It must agree with the shapes, so a generator needs a config of the generator.

    ConvBERT and MobileBERT get ``padding = "released"``, because their weights were trained to read the padding.
    """
    prefix = Path(prefix)
    given = dict(config) if isinstance(config, Mapping) else read_json(Path(config)) if config is not None else {}
    model = read_checkpoint(TensorFlowCheckpoint(prefix), part=part, config=given, where=prefix)
    model.tokenizer = read_tokenizer(prefix.parent)
    return model


def read_checkpoint(
    checkpoint: Checkpoint, *, part: str = "discriminator", config: Settings | None = None, where: Path = Path()
) -> Model:
    """Read a model from named arrays; an unknown name that isn't the optimizer's is an error."""
    if part not in electra.PARTS:
        raise unknown("part", part, electra.PARTS)
    names = model_variables(checkpoint)
    if "electra/embeddings/word_embeddings" in names:
        names, identify = electra.names_of_part(names, part), electra.identify
    elif any(name.startswith("bert/encoder/layer_0/bottleneck/") for name in names):
        if part == "generator":
            raise InputError("MobileBERT has no generator; leave out part='generator'")
        identify = mobilebert.identify
    else:
        raise InputError("the checkpoint must be of ELECTRA, ConvBERT or MobileBERT; lightbert can't read others")
    tensors = {name: torch.from_numpy(np.array(checkpoint.get(name), dtype=np.float32)) for name in names}
    released = identify(tensors, config or {})
    model = build(released.config, heads=released.heads, device="meta")
    ours = released.keymap.to_ours(tensors, model.state_dict(), last=released.last)
    fill(model, {name: tensor.contiguous() for name, tensor in ours.items()}, where)
    model.origin = released.family
    return model.eval()
