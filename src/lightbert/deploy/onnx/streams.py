"""States between layers; the scale and shift of a NoNorm are folded into the layers that read them."""

from dataclasses import dataclass

import numpy as np

from lightbert.deploy.onnx.graph import Array, Graph
from lightbert.deploy.onnx.inputs import Mask

SPREAD = 16.0
"""The largest ratio of two scales of a stream: with larger ones, int8 would round some channels more coarsely."""


@dataclass(frozen=True, eq=False)
class Stream:
    """States [N, D] of N = B·T tokens, in the form rows · scale + shift.

    Matrices instead of [B, T, D], because Gemm adds a bias or a residual without another operator.
    """

    rows: str
    scale: Array
    """[D]"""
    shift: Array
    """[D]"""

    @classmethod
    def plain(cls, rows: str, width: int) -> "Stream":
        """The rows as they are."""
        return cls(rows, np.ones(width, np.float32), np.zeros(width, np.float32))

    @classmethod
    def shifted(cls, rows: str, shift: Array) -> "Stream":
        """The rows plus a shift."""
        return cls(rows, np.ones_like(shift), shift)

    def affine(self, scale: Array, shift: Array) -> "Stream":
        """The states times a scale plus a shift, without an operator."""
        return Stream(self.rows, self.scale * scale, self.shift * scale + shift)

    def first(self, mask: Mask) -> "Stream":
        """The states of the first token of each text, [B, D]."""
        return Stream(mask.first(self.rows, len(self.scale)), self.scale, self.shift)

    def settled(self, graph: Graph) -> "Stream":
        """The same states; with scale and shift applied without folding, or if the scales differ too much."""
        largest, smallest = np.abs(self.scale).max(), np.abs(self.scale).min()
        if graph.folding and largest <= SPREAD * smallest:
            return self
        return Stream.plain(self.real(graph), len(self.scale))

    def real(self, graph: Graph) -> str:
        """The states as one value [N, D]."""
        return graph.once((self.rows, self.scale.tobytes(), self.shift.tobytes()), lambda: self._applied(graph))

    def _applied(self, graph: Graph) -> str:
        rows = self.rows
        if (self.scale != 1).any():
            rows = graph.op("Mul", rows, graph.constant(f"{self.rows}.scale", self.scale))
        if (self.shift != 0).any():
            rows = graph.op("Add", rows, graph.constant(f"{self.rows}.shift", self.shift))
        return rows
