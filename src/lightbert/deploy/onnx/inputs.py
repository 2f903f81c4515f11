"""The inputs of an exported graph, and the mask in the forms that attention, convolutions and embeddings use."""

import numpy as np

from lightbert.deploy.onnx.graph import Graph

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
INPUTS = (IDS, MASK, SEGMENTS)
"""The names and the order of Hugging Face's tokenizers; each is int64 [B, T]."""

HIDDEN = float(np.finfo(np.float32).min)
"""Added to the scores of keys that are masked."""


class Mask:
    """The counterpart of `lightbert.nn.mask.Mask` for a boolean mask; all parts are computed once per graph."""

    def __init__(self, graph: Graph, *, released: bool) -> None:
        self._graph, self._released = graph, released
        self.real = graph.op("Not", graph.op("Equal", MASK, graph.ints(0)))  # [B, T]
        ones = graph.op("Cast", self.real, to=_INT64)
        # A row that is all padding attends to all of its tokens, as in the model.
        any_real = graph.op("ReduceMax", ones, graph.ints(1), keepdims=1)
        self.visible = graph.op("Or", self.real, graph.op("Equal", any_real, graph.ints(0)))  # [B, T]
        bias = graph.op("Where", self.visible, graph.number(0.0), graph.number(HIDDEN))
        self.attention = graph.op("Unsqueeze", bias, graph.ints(1, 2))
        """[B, 1, 1, T], added to the scores"""
        self._ones = ones

    @property
    def pairs(self) -> str:
        """The bias of each pair of tokens [B, 1, T, T], the shape that Attention requires."""
        graph = self._graph
        return graph.once(
            "pairs",
            lambda: graph.op(
                "Expand", self.attention, graph.concat(graph.ints(1, 1), self.tokens, graph.ints(1), axis=0)
            ),
        )

    @property
    def tokens(self) -> str:
        """The number of tokens T, [1]."""
        return self._graph.once("tokens", lambda: self._graph.op("Shape", IDS, start=1, end=2))

    @property
    def positions(self) -> str:
        """The position of each token in its text [B, T], or with released padding in its row [T]."""
        return self._graph.once("positions", self._positions)

    def zero_padding(self, x: str) -> str:
        """Set the padding of x [B, T, D] to zero; with released padding, x is returned as it is."""
        return self._graph.op("Mul", x, self.factor) if self.factor else x

    @property
    def factor(self) -> str:
        """1 for real tokens and 0 for padding [B, T, 1]; "" with released padding, which convolutions read."""
        return "" if self._released else self._graph.once("factor", self._factor)

    def texts(self, rows: str, *sizes: int) -> str:
        """Split the tokens of a matrix into texts, and its channels into these sizes: [N, D] -> [B, T, *sizes]."""
        shape = self._graph.once(("texts", sizes), lambda: self._shape(*sizes))
        return self._graph.op("Reshape", rows, shape)

    def first(self, rows: str, width: int) -> str:
        """The first token of each text: [N, D] -> [B, D]."""
        return self._graph.op("Gather", self.texts(rows, width), self._graph.constant("zero", np.array(0)), axis=1)

    def mean(self, states: str) -> str:
        """The mean over the tokens of each text: [B, T, D] -> [B, D]."""
        graph = self._graph
        ones = graph.op("Cast", self.visible, to=FLOAT)
        shares = graph.op("Div", ones, graph.op("ReduceSum", ones, graph.ints(1), keepdims=1))
        means = graph.op("MatMul", graph.op("Unsqueeze", shares, graph.ints(1)), states)  # [B, 1, D]
        return graph.op("Squeeze", means, graph.ints(1))

    def max(self, states: str) -> str:
        """The maximum over the tokens of each text: [B, T, D] -> [B, D]."""
        graph = self._graph
        real = graph.op("Where", graph.op("Unsqueeze", self.visible, graph.ints(2)), states, graph.number(HIDDEN))
        return graph.op("ReduceMax", real, graph.ints(1), keepdims=0)

    def taps(self, kernel: int) -> str:
        """Which taps of a window around each token read a real token, or the token itself: [B, T, 1, K]."""
        return self._graph.once(("taps", kernel), lambda: self._taps(kernel))

    def _shape(self, *sizes: int) -> str:
        graph = self._graph
        rows_and_tokens = graph.once("shape", lambda: graph.op("Shape", IDS))
        return graph.concat(rows_and_tokens, graph.ints(*sizes), axis=0)

    def _factor(self) -> str:
        graph = self._graph
        return graph.op("Unsqueeze", graph.op("Cast", self.real, to=FLOAT), graph.ints(2))

    def _positions(self) -> str:
        graph = self._graph
        zero, one = graph.constant("zero", np.array(0)), graph.constant("one", np.array(1))
        if self._released:
            end = graph.op("Squeeze", self.tokens, graph.ints(0))
            return graph.op("Range", zero, end, one)
        counted = graph.op("Sub", graph.op("CumSum", self._ones, one), one)
        return graph.op("Max", counted, zero)

    def _taps(self, kernel: int) -> str:
        graph, radius = self._graph, kernel // 2
        # With released padding, only the ends of a row are outside.
        ones = graph.op("Max", self._ones, graph.ints(1)) if self._released else self._ones
        padded = graph.op("Pad", graph.op("Cast", ones, to=FLOAT), graph.ints(0, radius, 0, radius))
        shifted = []
        for tap in range(kernel):
            if tap == radius:
                shifted.append(graph.op("Cast", graph.op("Max", self._ones, graph.ints(1)), to=FLOAT))
                continue
            end = graph.op("Add", self.tokens, graph.ints(tap))
            shifted.append(graph.slice(padded, graph.ints(tap), end, 1))
        columns = [graph.op("Unsqueeze", each, graph.ints(2, 3)) for each in shifted]
        return graph.op("Cast", graph.concat(*columns), to=_BOOL)


# onnx.TensorProto's numbers, so that this file doesn't import onnx.
FLOAT, _INT64, _BOOL = 1, 7, 9
