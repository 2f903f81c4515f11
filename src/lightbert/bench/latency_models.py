"""The models of the latency benchmark: presets and bundled models, also with changes, and single blocks."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from lightbert import bundled
from lightbert.config import assignments, from_mapping, override, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.interop import huggingface
from lightbert.interop.load import describe
from lightbert.interop.names import find
from lightbert.interop.peers import plain_encoder
from lightbert.models import PRESETS, Config, build
from lightbert.models.convbert import mixed_attention
from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import PostNormBlock
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import initialize
from lightbert.nn.norms import layer_norm

BLOCKS = ("attention-block", "mixed-block")
"""Blocks without feed-forwards at the size of BERT-base and ConvBERT-base (ConvBERT Table 9)."""

_BLOCKS_PER_MODEL = 4


def encoder_of(name: str) -> Encoder:
    """A model with random weights: that of a preset or a bundled model, or a block.

    A name may have changes, such as ``mobilebert:norm=layer``.
    """
    if name in BLOCKS:
        return _blocks(mixed=name == "mixed-block")
    first, *changes = name.split(":")
    config = _config(first)
    if changes:
        config = from_mapping(type(config), override(to_mapping(config), assignments(changes)))
    return build(config, seed=0).eval().requires_grad_(False)


def transformers_encoder(name: str) -> nn.Module:
    """The same model in transformers, with the same weights; its inputs are ids, mask and segments."""
    with peer_folder(name) as folder:
        return plain_encoder(folder)


@contextmanager
def peer_folder(name: str) -> Iterator[Path]:
    """Yield a temporary folder with the same model in the Hugging Face layout."""
    if name in BLOCKS:
        raise InputError(f"'{name}' is a block, which transformers can't run alone; leave out the runtimes of peers")
    first, *changes = name.split(":")
    if changes:
        raise InputError(f"runtimes of peers require a model without changes, got '{name}'")
    with tempfile.TemporaryDirectory() as folder:
        huggingface.write(build(_config(first), seed=0), Path(folder) / "peer")
        yield Path(folder) / "peer"


def _config(name: str) -> Config:
    """The config of a preset or of a bundled model."""
    if name not in PRESETS and name not in bundled.NAMES:
        raise unknown("model", name, [*PRESETS, *bundled.NAMES])
    return describe(find(name)).config if name in bundled.NAMES else PRESETS[name]


def _blocks(*, mixed: bool) -> Encoder:
    width, n_heads, norm = 768, 12, layer_norm(1e-12)
    blocks = [
        PostNormBlock(
            width,
            mixer=mixed_attention(width, n_heads, head_ratio=2, kernel=9, convolution="span")
            if mixed
            else SelfAttention(width, n_heads),
            feedforward=nn.Sequential(),
            norm=norm,
        )
        for _ in range(_BLOCKS_PER_MODEL)
    ]
    # A small vocabulary, because only the blocks are of interest.
    embeddings = Embeddings(1000, width, width, positions=512, segments=2, norm=norm)
    encoder = Encoder(embeddings, blocks, width=width, positions=512)
    initialize(encoder, seed=0)
    return encoder.eval().requires_grad_(False)
