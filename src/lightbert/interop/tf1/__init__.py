"""The original checkpoints of ELECTRA, ConvBERT and MobileBERT, as their TensorFlow 1 code wrote them."""

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
    """Read a checkpoint with the heads it was pre-trained with; it needs tensorflow.

    prefix: the path of its files without `.index`; a `vocab.txt` beside them becomes the tokenizer.
    part: which half of an ELECTRA or ConvBERT, "discriminator" or "generator". MobileBERT has one part only.
    config: the JSON of the release, or its keys, for what shapes don't tell. The published models need none. Where the
    two overlap they must agree, so a generator asks for a config of its own.

    ConvBERT and MobileBERT come with released padding: their weights have learnt to read the padding.
    """
    prefix = Path(prefix)
    given = dict(config) if isinstance(config, Mapping) else read_json(Path(config)) if config is not None else {}
    model = read_checkpoint(TensorFlowCheckpoint(prefix), part=part, config=given, where=prefix)
    model.tokenizer = read_tokenizer(prefix.parent)
    return model


def read_checkpoint(
    checkpoint: Checkpoint, *, part: str = "discriminator", config: Settings | None = None, where: Path = Path()
) -> Model:
    """Read a model from named arrays; any that is not the optimizer's and finds no place is an error."""
    if part not in electra.PARTS:
        raise unknown("part", part, electra.PARTS)
    names = model_variables(checkpoint)
    if "electra/embeddings/word_embeddings" in names:
        names, identify = electra.of_part(names, part), electra.original
    elif any(name.startswith("bert/encoder/layer_0/bottleneck/") for name in names):
        if part == "generator":
            raise InputError("a MobileBERT has no generator: read it without naming a part")
        identify = mobilebert.original
    else:
        raise InputError("the checkpoint is no ELECTRA, ConvBERT or MobileBERT; lightbert reads no others")
    tensors = {name: torch.from_numpy(np.array(checkpoint.get(name), dtype=np.float32)) for name in names}
    original = identify(tensors, config or {})
    model = build(original.config, heads=original.heads, device="meta")
    ours = original.keymap.to_ours(tensors, model.state_dict(), last=original.last)
    fill(model, {name: tensor.contiguous() for name, tensor in ours.items()}, where)
    model.origin = original.family
    return model.eval()
