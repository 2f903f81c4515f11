"""The inputs of an exported graph, its mask in the forms that the parts of a model use, and windows of tokens."""

from collections.abc import Callable

import numpy as np

from lightbert.deploy.onnx.graph import Graph

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
INPUTS = (IDS, MASK, SEGMENTS)
"""The names and the order of Hugging Face's tokenizers; each is int64 [B, T]."""

HIDDEN = float(np.finfo(np.float32).min)
"""Added to the scores of keys that are masked."""

BLOCK = 16
"""Tokens per block of the banded matrix product: the fastest of 8, 16, 32 and 64 on a Neoverse-N1."""

# onnx.TensorProto's numbers, so that this file doesn't import onnx.
FLOAT, INT64, _BOOL = 1, 7, 9


class Mask:
    """The counterpart of `lightbert.nn.mask.Mask` for a boolean mask; all parts are computed once per graph."""

    def __init__(self, graph: Graph, *, released: bool) -> None:
        self._graph, self._released = graph, released
        self.real = graph.op("Not", graph.op("Equal", MASK, graph.ints(0)))  # [B, T]
        self._ones = graph.op("Cast", self.real, to=INT64)
        # A row that is all padding attends to all of its tokens, as in the model.
        any_real = graph.op("ReduceMax", self._ones, graph.ints(1), keepdims=1)
        self.visible = graph.op("Or", self.real, graph.op("Equal", any_real, graph.ints(0)))  # [B, T]
        bias = graph.op("Where", self.visible, graph.number(0.0), graph.number(HIDDEN))
        self.attention = graph.unsqueeze(bias, 1, 2)
        """[B, 1, 1, T], added to the scores"""

    @property
    def pairs(self) -> str:
        """The bias of each pair of tokens [B, 1, T, T], the shape that Attention requires."""
        graph = self._graph

        def expand() -> str:
            shape = graph.concat(graph.ints(1, 1), self.tokens, graph.ints(1), axis=0)
            return graph.op("Expand", self.attention, shape)

        return graph.once("pairs", expand)

    @property
    def tokens(self) -> str:
        """The number of tokens T, [1]."""
        return self._graph.once("tokens", lambda: self._graph.op("Shape", IDS, start=1, end=2))

    @property
    def positions(self) -> str:
        """The position of each token in its text [B, T], or with released padding in its row [T]."""
        graph = self._graph

        def count() -> str:
            zero, one = graph.integer(0), graph.integer(1)
            if self._released:
                return graph.op("Range", zero, graph.squeeze(self.tokens, 0), one)
            counted = graph.op("Sub", graph.op("CumSum", self._ones, one), one)
            return graph.op("Max", counted, zero)

        return graph.once("positions", count)

    @property
    def factor(self) -> str:
        """1 for real tokens and 0 for padding [B, T, 1]; "" with released padding, which convolutions read."""
        graph = self._graph
        if self._released:
            return ""
        return graph.once("factor", lambda: graph.unsqueeze(graph.op("Cast", self.real, to=FLOAT), 2))

    def zero_padding(self, x: str) -> str:
        """Set the padding of x [B, T, D] to zero; with released padding, x is returned as it is."""
        return self._graph.op("Mul", x, self.factor) if self.factor else x

    def zero_rows(self, rows: str) -> str:
        """Set the padding of a matrix [N, D] to zero; with released padding, it is returned as it is."""
        graph = self._graph
        if not self.factor:
            return rows
        factor = graph.once("factor of rows", lambda: graph.reshape(self.factor, -1, 1))
        zeroed = graph.once(("zeroed", rows), lambda: graph.op("Mul", rows, factor))
        # They are zero already if this is called with them.
        return graph.once(("zeroed", zeroed), lambda: zeroed)

    def texts(self, rows: str, *sizes: int) -> str:
        """Split the tokens of a matrix into texts, and its channels into these sizes: [N, D] -> [B, T, *sizes]."""
        return self._graph.op("Reshape", rows, self.shape(*sizes))

    def shape(self, *sizes: int) -> str:
        """The shape [B, T, *sizes]."""
        graph = self._graph

        def shape() -> str:
            return graph.concat(graph.once("shape", lambda: graph.op("Shape", IDS)), graph.ints(*sizes), axis=0)

        return graph.once(("texts", sizes), shape)

    def first(self, rows: str, width: int) -> str:
        """The first token of each text: [N, D] -> [B, D]."""
        return self._graph.op("Gather", self.texts(rows, width), self._graph.integer(0), axis=1)

    def pooled(self, states: str, pool: str) -> str:
        """One vector per text: [B, T, D] -> [B, D], or [B, 2 D] for "mean-max"."""
        pools = {"mean": (self.mean,), "max": (self.max,), "mean-max": (self.mean, self.max)}
        return self._graph.concat(*(compute(states) for compute in pools[pool]))

    def mean(self, states: str) -> str:
        """The mean over the tokens of each text: [B, T, D] -> [B, D]."""
        graph = self._graph
        ones = graph.op("Cast", self.visible, to=FLOAT)
        weights = graph.op("Div", ones, graph.op("ReduceSum", ones, graph.ints(1), keepdims=1))
        return graph.squeeze(graph.op("MatMul", graph.unsqueeze(weights, 1), states), 1)

    def max(self, states: str) -> str:
        """The maximum over the tokens of each text: [B, T, D] -> [B, D]."""
        graph = self._graph
        real = graph.op("Where", graph.unsqueeze(self.visible, 2), states, graph.number(HIDDEN))
        return graph.op("ReduceMax", real, graph.ints(1), keepdims=0)

    def taps(self, kernel: int) -> str:
        """Which taps of a window around each token read a real token, or the token itself: [B, T, 1, K]."""
        graph, radius = self._graph, kernel // 2

        def read() -> str:
            # With released padding, only the ends of a row are outside.
            ones = graph.op("Max", self._ones, graph.ints(1)) if self._released else self._ones
            padded = graph.op("Pad", graph.op("Cast", ones, to=FLOAT), graph.ints(0, radius, 0, radius))
            columns = []
            for tap in range(kernel):
                if tap == radius:
                    columns.append(graph.op("Cast", graph.op("Max", self._ones, graph.ints(1)), to=FLOAT))
                    continue
                end = graph.op("Add", self.tokens, graph.ints(tap))
                columns.append(graph.slice(padded, graph.ints(tap), end, 1))
            return graph.op("Cast", graph.concat(*[graph.unsqueeze(column, 2, 3) for column in columns]), to=_BOOL)

        return graph.once(("taps", kernel), read)


class Windows:
    """The windows of K tokens around each token of n = ⌈T / S⌉ blocks of S tokens, in a batch of B texts.

    A block reads W = S + K - 1 tokens. Indices of tokens beyond the ends of a text are those of its first or last
    token; `taps` removes them. All indices are computed once per graph.

    kernel: K.
    """

    def __init__(self, graph: Graph, mask: Mask, kernel: int) -> None:
        self._graph, self._mask, self._kernel = graph, mask, kernel

    def rows(self, n_heads: int) -> str:
        """The rows of a matrix [B·T·H, E] that each block reads, [B, H, n, W]."""
        graph = self._graph

        def index() -> str:
            tokens = self._inside()
            heads = graph.constant(f"heads[{n_heads}]", np.arange(n_heads)[:, None, None])
            return graph.op("Add", graph.op("Mul", tokens, graph.ints(n_heads)), heads)

        return self._once("rows", n_heads, index)

    def centres(self, n_heads: int) -> str:
        """The rows of a matrix [B·T·H, K] that belong to the tokens of each block, [B, H, n, S]."""
        graph, radius = self._graph, self._kernel // 2

        def index() -> str:
            return graph.slice(self.rows(n_heads), graph.ints(radius), graph.ints(radius + BLOCK), 3)

        return self._once("centres", n_heads, index)

    def tokens(self, n_heads: int) -> str:
        """The rows of a matrix [B·H·n·S, E] that belong to each token, [B, T, H]."""
        graph = self._graph

        def index() -> str:
            texts = graph.op("Shape", IDS, start=0, end=1)
            heads = self._range(graph.op("Mul", texts, graph.ints(n_heads)))
            room = graph.op("Mul", graph.op("Shape", self._starts()), graph.ints(BLOCK))
            firsts = graph.op("Mul", graph.reshape(heads, -1, 1, n_heads), room)  # [B, 1, H]
            return graph.op("Add", firsts, graph.reshape(self._range(self._mask.tokens), -1, 1))

        return self._once("tokens", n_heads, index)

    @property
    def taps(self) -> str:
        """1 for the taps of each token that read a real token, 0 for others, [B, 1, n, S, K]."""
        graph = self._graph

        def read() -> str:
            real = graph.op("Cast", graph.op("Equal", self._places(), self._nearest()), to=FLOAT)  # [n, W]
            real = graph.unsqueeze(real, 0, 1)
            if self._mask.factor:
                real = graph.op("Mul", real, graph.op("Gather", graph.reshape(self._mask.factor, -1), self._inside()))
            taps = np.arange(BLOCK)[:, None] + np.arange(self._kernel)
            return graph.op("Gather", real, graph.constant(f"taps[{self._kernel}]", taps), axis=3)

        return self._once("taps", 0, read)

    def _once(self, name: str, n_heads: int, make: Callable[[], str]) -> str:
        return self._graph.once((f"windows, {name}", self._kernel, n_heads), make)

    def _starts(self) -> str:
        """The first token of each block, [n]."""
        return self._graph.once("block starts", lambda: self._range(self._mask.tokens, BLOCK))

    def _places(self) -> str:
        """The token that each place of a window reads, possibly beyond the ends of the text, [n, W]."""
        graph, width = self._graph, BLOCK + self._kernel - 1
        offsets = graph.constant(f"windows[{self._kernel}]", np.arange(width) - self._kernel // 2)
        starts = graph.once("block rows", lambda: graph.unsqueeze(self._starts(), 1))
        return self._once("places", 0, lambda: graph.op("Add", starts, offsets))

    def _nearest(self) -> str:
        """The token of the text that is nearest to each place of a window, [n, W]."""
        graph = self._graph
        last = graph.once("last token", lambda: graph.op("Sub", self._mask.tokens, graph.ints(1)))

        def clamp() -> str:
            return graph.op("Max", graph.op("Min", self._places(), last), graph.ints(0))

        return self._once("nearest", 0, clamp)

    def _inside(self) -> str:
        """The nearest tokens by their number in the batch, [B, 1, n, W]."""
        graph = self._graph

        def index() -> str:
            end, step = graph.op("Size", IDS), graph.squeeze(self._mask.tokens, 0)
            firsts = graph.op("Range", graph.integer(0), end, step)
            return graph.op("Add", graph.reshape(firsts, -1, 1, 1, 1), self._nearest())

        return self._once("inside", 0, index)

    def _range(self, end: str, step: int = 1) -> str:
        """The numbers from 0 to `end`, [1]."""
        graph = self._graph
        return graph.op("Range", graph.integer(0), graph.squeeze(end, 0), graph.integer(step))
