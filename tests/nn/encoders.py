"""A small encoder with attention and convolution heads, all weights random."""

import torch
from torch import Tensor

from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import PostNormBlock
from lightbert.nn.convolution import SpanConvolution
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import layer_norm
from randomised import randomised

WIDTH, DEPTH, KERNEL, POSITIONS = 16, 3, 5, 12


def make(dropout: float = 0.0) -> Encoder:
    norm = layer_norm(1e-12)
    blocks = [
        PostNormBlock(
            WIDTH,
            mixer=SelfAttention(
                WIDTH, 2, head_width=4, convolution=SpanConvolution(WIDTH, 8, 2, KERNEL), dropout=dropout
            ),
            feedforward=FeedForward(WIDTH, 20, activation="gelu", norm=norm, dropout=dropout),
            norm=norm,
            dropout=dropout,
        )
        for _ in range(DEPTH)
    ]
    embeddings = Embeddings(30, 8, WIDTH, positions=POSITIONS, segments=2, norm=norm, dropout=dropout)
    return randomised(Encoder(embeddings, blocks, width=WIDTH, positions=POSITIONS))


def ids(*shape: int) -> Tensor:
    return torch.randint(0, 30, shape)
