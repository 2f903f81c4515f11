"""The graph under construction: nodes in order, constants by name, linear layers, and the states between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]

SPREAD = 16.0
"""The largest ratio of two scales of a stream: with larger ones, int8 would round some channels more coarsely."""


@dataclass(frozen=True, eq=False)
class Node:
    """An ONNX operator."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear layer, x @ weight + bias or residual; what it becomes depends on its precision (`lowering.py`)."""

    name: str
    input: str
    output: str
    weight: Array
    """[I, O]"""
    bias: Array | None
    table: str = ""
    """The name of the table [O, I] that the layer shares its weight with; "" if it has its own."""
    residual: str = ""
    """A value [N, O] that is added to the product of a layer without a bias; "" if there is none."""
    matrix: bool = True
    """Whether the input is a matrix [N, I]."""
    floating: bool = False
    """Whether the layer stays in float32 where others become int8."""


@dataclass(frozen=True, eq=False)
class Depthwise:
    """A convolution over the tokens of each text with one kernel per channel: [N, D] -> [N, D]."""

    input: str
    output: str
    name: str
    weight: Array
    """[D, K]"""
    texts: str
    """The name of the shape [B, T, D]."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """A lookup of rows of a table."""

    name: str
    input: str
    output: str
    table: Array


@dataclass(frozen=True, eq=False)
class Output:
    """An output of a graph."""

    value: str
    shape: tuple[str | int, ...] | None
    integer: bool = False


Part = Node | Linear | Depthwise | Lookup


class Graph:
    """Collects nodes; every method that adds one returns the name of its output.

    root: the module whose parameter names become the names of the constants.
    folding: fold the scale and shift of a `Stream` into the layers that read it.
    int8: the layers will be quantized, so what they read should have no larger range than in the model.
    """

    def __init__(self, root: nn.Module, *, folding: bool = True, int8: bool = False) -> None:
        self.folding, self.int8 = folding, int8
        self.nodes: list[Part] = []
        self.constants: dict[str, Array] = {}
        self.factors: dict[str, tuple[str, ...]] = {}
        """Value -> the outputs of layers that, side by side, are factors of its channels, with the same number."""
        self._paths = {module: path for path, module in root.named_modules()}
        self._computed: dict[Any, str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Add an operator with several outputs."""
        names = tuple(f"{kind}_{len(self.nodes)}_{number}" for number in range(outputs))
        self.nodes.append(Node(kind, inputs, names, attributes))
        return names

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """Return what `make` added when it was first called with this key, for values that several layers use."""
        if key not in self._computed:
            self._computed[key] = make()
        return self._computed[key]

    def ints(self, *values: int) -> str:
        """A vector of integers: a shape, axes or bounds."""
        return self.constant(f"ints{list(values)}", np.array(values, dtype=np.int64))

    def number(self, value: float) -> str:
        """A scalar in float32."""
        return self.constant(f"number[{value!r}]", np.float32(value))

    def integer(self, value: int) -> str:
        """A scalar in int64."""
        return self.constant(f"integer[{value}]", np.array(value))

    def constant(self, name: str, value: Array | np.float32) -> str:
        """A constant by name."""
        self.constants[name] = np.asarray(value)
        return name

    def parameter(self, module: nn.Module, name: str, value: Array) -> str:
        """A constant with the name of a module's parameter."""
        return self.constant(f"{self.path(module)}.{name}", value)

    def path(self, module: nn.Module) -> str:
        """The name of a module in the model, such as "blocks.0.mixer.query"."""
        path: str = self._paths[module]
        return path

    def linear(self, x: str, name: str, weight: Array, bias: Array | None, **options: Any) -> str:
        """X [..., I] @ weight [I, O] + bias; `options` are further fields of `Linear`."""
        output = f"{name}_{len(self.nodes)}"
        self.nodes.append(Linear(name, x, output, weight, bias, **options))
        return output

    def depthwise(self, x: str, name: str, weight: Array, texts: str) -> str:
        """A depthwise convolution of x [N, D]; `texts` is the name of the shape [B, T, D]."""
        output = f"{name}_{len(self.nodes)}"
        self.nodes.append(Depthwise(x, output, name, weight, texts))
        return output

    def lookup(self, ids: str, module: nn.Embedding) -> str:
        """Rows of a table: ids [...] -> [..., D]."""
        output = f"{self.path(module)}_{len(self.nodes)}"
        self.nodes.append(Lookup(f"{self.path(module)}.weight", ids, output, array_of(module.weight)))
        return output

    def reshape(self, x: str, *shape: int) -> str:
        """Change the shape; 0 keeps a dimension, -1 infers it."""
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *order: int) -> str:
        """Permute the dimensions."""
        return self.op("Transpose", x, perm=list(order))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Add dimensions of size 1."""
        return self.op("Unsqueeze", x, self.ints(*axes))

    def squeeze(self, x: str, axis: int = -1) -> str:
        """Remove a dimension of size 1."""
        return self.op("Squeeze", x, self.ints(axis))

    def split(self, x: str, sizes: Sequence[int]) -> tuple[str, ...]:
        """Split the last dimension into parts."""
        return (x,) if len(sizes) == 1 else self.ops("Split", x, self.ints(*sizes), outputs=len(sizes), axis=-1)

    def concat(self, *parts: str, axis: int = -1) -> str:
        """Concatenate along one dimension."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def slice(self, x: str, start: str, end: str, axis: int) -> str:
        """Elements start to end of one dimension."""
        return self.op("Slice", x, start, end, self.ints(axis))

    def softmax(self, x: str) -> str:
        """Softmax over the last dimension."""
        return self.op("Softmax", x, axis=-1)


def array_of(parameter: Tensor) -> Array:
    """A parameter as a float32 array."""
    return np.ascontiguousarray(parameter.detach().float().cpu().numpy())


@dataclass(frozen=True, eq=False)
class Stream:
    """States [N, D] of N = B·T tokens, in the form rows · scale + shift.

    The scale and the shift, those of a NoNorm, are folded into the layers that read the states. States are matrices
    instead of [B, T, D], because Gemm adds a bias or a residual without another operator.
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

    def settled(self, graph: Graph) -> "Stream":
        """Apply the scale and the shift if the graph doesn't fold them, or if the scales differ too much."""
        if graph.folding and np.abs(self.scale).max() <= SPREAD * np.abs(self.scale).min():
            return self
        return Stream.plain(self.real(graph), len(self.scale))

    def real(self, graph: Graph) -> str:
        """The states as one value [N, D]."""

        def apply() -> str:
            rows = self.rows
            if (self.scale != 1).any():
                rows = graph.op("Mul", rows, graph.constant(f"{self.rows}.scale", self.scale))
            if (self.shift != 0).any():
                rows = graph.op("Add", rows, graph.constant(f"{self.rows}.shift", self.shift))
            return rows

        return graph.once((self.rows, self.scale.tobytes(), self.shift.tobytes()), apply)
