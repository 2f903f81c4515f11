"""The indices of the windows that convolutions read, in blocks of tokens; they are computed once per graph."""

from collections.abc import Callable

import numpy as np

from lightbert.deploy.onnx.graph import Graph
from lightbert.deploy.onnx.inputs import FLOAT, IDS, Mask

BLOCK = 16
"""Tokens per block of the banded matrix product: the fastest of 8, 16, 32 and 64 on a Neoverse-N1."""


class Windows:
    """The windows of K tokens around each token of n = ⌈T / S⌉ blocks of S tokens, in a batch of B texts.

    A block reads W = S + K - 1 tokens. Indices of tokens beyond the ends of a text are those of its first or last
    token; `taps` removes them.

    kernel: K.
    """

    def __init__(self, graph: Graph, mask: Mask, kernel: int) -> None:
        self._graph, self._mask, self._kernel = graph, mask, kernel

    def rows(self, n_heads: int) -> str:
        """The rows of a matrix [B·T·H, E] that each block reads, [B, H, n, W]."""
        return self._once("rows", n_heads, lambda: self._of_heads(self._inside(), n_heads))

    def centres(self, n_heads: int) -> str:
        """The rows of a matrix [B·T·H, K] that belong to the tokens of each block, [B, H, n, S]."""
        return self._once("centres", n_heads, lambda: self._centres(n_heads))

    def tokens(self, n_heads: int) -> str:
        """The rows of a matrix [B·H·n·S, E] that belong to each token, [B, T, H]."""
        return self._once("tokens", n_heads, lambda: self._tokens(n_heads))

    @property
    def taps(self) -> str:
        """1 for the taps of each token that read a real token, 0 for others, [B, 1, n, S, K]."""
        return self._once("taps", 0, self._taps)

    def _once(self, name: str, n_heads: int, make: Callable[[], str]) -> str:
        return self._graph.once((f"windows, {name}", self._kernel, n_heads), make)

    def _starts(self) -> str:
        """The first token of each block, [n]."""
        graph = self._graph
        return graph.once("block starts", lambda: self._range(self._scalar(self._mask.tokens), BLOCK))

    def _places(self) -> str:
        """The token that each place of a window reads, possibly beyond the ends of the text, [n, W]."""
        graph, width = self._graph, BLOCK + self._kernel - 1
        offsets = graph.constant(f"windows[{self._kernel}]", np.arange(width) - self._kernel // 2)
        starts = graph.once("block rows", lambda: graph.op("Unsqueeze", self._starts(), graph.ints(1)))
        return self._once("places", 0, lambda: graph.op("Add", starts, offsets))

    def _nearest(self) -> str:
        """The same with the nearest token of the text, [n, W]."""
        graph = self._graph
        last = graph.once("last token", lambda: graph.op("Sub", self._mask.tokens, graph.ints(1)))
        below = self._once("below", 0, lambda: graph.op("Min", self._places(), last))
        return self._once("nearest", 0, lambda: graph.op("Max", below, graph.ints(0)))

    def _inside(self) -> str:
        """The same as numbers of tokens of the batch, [B, 1, n, W]."""
        return self._once("inside", 0, self._of_texts)

    def _of_texts(self) -> str:
        graph = self._graph
        every = graph.op("Size", IDS)
        firsts = graph.op("Range", self._number(0), every, self._scalar(self._mask.tokens))
        return graph.op("Add", graph.reshape(firsts, -1, 1, 1, 1), self._nearest())

    def _of_heads(self, tokens: str, n_heads: int) -> str:
        graph = self._graph
        heads = graph.constant(f"heads[{n_heads}]", np.arange(n_heads)[:, None, None])
        return graph.op("Add", graph.op("Mul", tokens, graph.ints(n_heads)), heads)

    def _centres(self, n_heads: int) -> str:
        graph, radius = self._graph, self._kernel // 2
        return graph.slice(self.rows(n_heads), graph.ints(radius), graph.ints(radius + BLOCK), 3)

    def _tokens(self, n_heads: int) -> str:
        graph = self._graph
        texts = graph.op("Shape", IDS, start=0, end=1)
        heads = self._range(self._scalar(graph.op("Mul", texts, graph.ints(n_heads))))
        room = graph.op("Mul", graph.op("Shape", self._starts()), graph.ints(BLOCK))
        firsts = graph.op("Mul", graph.reshape(heads, -1, 1, n_heads), room)  # [B, 1, H]
        each = self._range(self._scalar(self._mask.tokens))
        return graph.op("Add", firsts, graph.reshape(each, -1, 1))

    def _taps(self) -> str:
        graph = self._graph
        read = graph.op("Cast", graph.op("Equal", self._places(), self._nearest()), to=FLOAT)  # [n, W]
        read = graph.op("Unsqueeze", read, graph.ints(0, 1))
        if self._mask.factor:
            read = graph.op("Mul", read, graph.op("Gather", graph.reshape(self._mask.factor, -1), self._inside()))
        taps = np.arange(BLOCK)[:, None] + np.arange(self._kernel)
        return graph.op("Gather", read, graph.constant(f"taps[{self._kernel}]", taps), axis=3)

    def _range(self, end: str, step: int = 1) -> str:
        return self._graph.op("Range", self._number(0), end, self._number(step))

    def _scalar(self, value: str) -> str:
        return self._graph.op("Squeeze", value, self._graph.ints(0))

    def _number(self, value: int) -> str:
        return self._graph.constant(f"integer[{value}]", np.array(value))
