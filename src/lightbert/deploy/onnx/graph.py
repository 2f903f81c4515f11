"""The graph under construction: nodes in order, constants by name, and the layers that hold most of the weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]


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


class Graph:
    """Collects nodes; every method that adds one returns the name of its output.

    root: the module whose parameter names become the names of the constants.
    folding: fold the scale and shift of states into the layers that read them (`streams.py`).
    int8: the layers will be quantized, so what they read should have no larger range than in the model.
    """

    def __init__(self, root: nn.Module, *, folding: bool = True, int8: bool = False) -> None:
        self.folding, self.int8 = folding, int8
        self.nodes: list[Node | Linear | Lookup] = []
        self.constants: dict[str, Array] = {}
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

    def lookup(self, ids: str, module: nn.Module, table: Array) -> str:
        """Rows of a table: ids [...] -> [..., D]."""
        output = f"{self.path(module)}_{len(self.nodes)}"
        self.nodes.append(Lookup(f"{self.path(module)}.weight", ids, output, table))
        return output

    def reshape(self, x: str, *shape: int) -> str:
        """Change the shape; 0 keeps a dimension, -1 infers it."""
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *order: int) -> str:
        """Permute the dimensions."""
        return self.op("Transpose", x, perm=list(order))

    def split(self, x: str, sizes: Sequence[int], axis: int = -1) -> tuple[str, ...]:
        """Split one dimension into parts."""
        return (x,) if len(sizes) == 1 else self.ops("Split", x, self.ints(*sizes), outputs=len(sizes), axis=axis)

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
