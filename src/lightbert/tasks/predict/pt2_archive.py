"""Runs a .pt2 archive without `torch.export.load`, which unpickles, evaluates and compiles strings of the archive.

Of an archive, only JSON and the raw bytes of tensors are read. Its graph is a list of calls of operators, which are
looked up in a fixed list of operators that neither run code nor touch files, and called one by one: nothing in an
archive can run code.
"""

import json
import operator
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError, is_out_of_memory

_MAX_JSON = 64 * 2**20
_ENTRY = re.compile(
    r"archive_format|archive_version|byteorder|\.data/(version|serialization_id|\w*alignment)|models/model\.json"
    r"|data/(weights/(weight_\d+|model_weights_config\.json)|constants/(tensor_\d+|model_constants_config\.json)"
    # Written by torch.export.save; a pickle, and never opened.
    r"|sample_inputs/model\.pt)"
)

# The operators of the graphs that `lightbert export` writes. None of them reads or writes a file, or skips the check of
# an index.
_OPERATORS = """
    __and__.Tensor __or__.Tensor abs.default add.Tensor add_.Tensor addcmul_.default alias.default amax.default
    any.dim arange.default bitwise_not.default cat.default chunk.default clamp.default contiguous.default
    cumsum.default div.Tensor dropout.default einsum.default embedding.default eq.Scalar eq.Tensor
    expand.default flatten.using_ints gather.default gelu.default gt.Scalar layer_norm.default linear.default
    masked_fill.Scalar matmul.default mul.Tensor ne.Scalar new_ones.default pad.default promote_types.default
    relu.default remainder.Scalar scaled_dot_product_attention.default select.int slice.Tensor softmax.int
    sqrt.default squeeze.dim stack.default sub.Tensor sum.dim_IntList sym_size.int t.default tanh.default
    to.dtype transpose.int unbind.int unflatten.int unsqueeze.default
"""
_TARGETS = {f"torch.ops.aten.{name}" for name in _OPERATORS.split()}
_ARITHMETIC = {f"_operator.{name}": getattr(operator, name) for name in ("add", "floordiv", "mod", "mul", "neg", "sub")}
_CHECKS = {"torch.ops.aten._assert_tensor_metadata.default", "torch.ops.aten._assert_scalar.default"}

# The numbers of torch.export's schema.
_DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
_LAYOUTS = {7: torch.strided}
_FORMATS = {1: torch.contiguous_format, 4: torch.preserve_format}
_POSITIONAL = 1

_DAMAGE = (zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError, RuntimeError, OSError, EOFError)


@dataclass(frozen=True)
class _Name:
    """An argument that is a value of the graph."""

    name: str


@dataclass(frozen=True)
class _Call:
    """A call of an operator: its arguments, and the names of its results."""

    run: Callable[..., Any]
    positional: list[Any]
    named: dict[str, Any]
    results: list[str]
    several: bool
    """Whether the operator returns a list of results."""


class Pt2Program:
    """The program of a .pt2 archive: called with its inputs, it returns a tuple of tensors.

    Raises an InputError if the archive contains anything but tensors and calls of known operators.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with zipfile.ZipFile(path) as archive:
                entries = _Entries(archive, path.stat().st_size)
                tensors = entries.tensors("weights") | entries.tensors("constants")
                program = entries.parsed("models/model.json")["graph_module"]
            self._calls = [_call(node) for node in program["graph"]["nodes"] if node["target"] not in _CHECKS]
            self._inputs, self._values = _inputs(program["signature"]["input_specs"], tensors)
            specs = program["signature"]["output_specs"]
            self._outputs = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in specs]
            self._unused = self._last_reads()
        except InputError as error:
            raise InputError(f"'{path}' is not loaded: {error}; export the model with `lightbert export`") from None
        # Damaged archives raise many kinds of errors.
        except _DAMAGE as error:
            raise InputError(
                f"'{path}' is not a .pt2 archive of lightbert ({type(error).__name__}: {error}); export or copy "
                "it again"
            ) from error

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Call the operators in the order of the graph."""
        values: dict[str, Any] = {**self._values, **dict(zip(self._inputs, inputs, strict=True))}
        for call, unused in zip(self._calls, self._unused, strict=True):
            named = {name: _resolve(value, values) for name, value in call.named.items()}
            try:
                result = call.run(*(_resolve(value, values) for value in call.positional), **named)
            # A program of lightbert runs with any inputs, but a damaged one may not.
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                if is_out_of_memory(error):
                    raise
                raise InputError(f"'{self._path}' can't be run ({error}); export or copy it again") from error
            values.update(zip(call.results, result if call.several else (result,), strict=False))
            for name in unused:
                del values[name]
        return tuple(values[name] for name in self._outputs)

    def _last_reads(self) -> list[list[str]]:
        """For each call, the values that nothing reads afterwards; raise a LookupError if a value is not defined."""
        known = {*self._values, *self._inputs}
        for call in self._calls:
            missing = set(_names([call.positional, *call.named.values()])) - known
            if missing:
                raise LookupError(f"{sorted(missing)[0]!r} is not defined")
            known.update(call.results)
        needed = {*self._values, *self._outputs}
        if not needed <= known:
            raise LookupError("an output is not defined")
        unused = []
        for call in reversed(self._calls):
            names = {*_names([call.positional, *call.named.values()]), *call.results} - needed
            unused.append(sorted(names))
            needed |= names
        return unused[::-1]


class _Entries:
    """The entries of an archive, if all of them are known, stored without compression, and small enough."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            name = entry.filename.partition("/")[2]
            if not _ENTRY.fullmatch(name) or name in self._entries:
                raise InputError(f"the archive contains {entry.filename!r}, which `lightbert export` doesn't write")
            self._entries[name] = entry
        # Entries that are compressed or overlap could be of any size.
        if sum(entry.file_size for entry in self._entries.values()) > size:
            raise InputError("its entries are larger than the file")

    def parsed(self, name: str) -> Any:
        """Parse a JSON file."""
        if self._entries[name].file_size > _MAX_JSON:
            raise InputError(f"{name} must have at most {_MAX_JSON} bytes, got {self._entries[name].file_size}")
        return json.loads(self._archive.read(self._entries[name]))

    def tensors(self, folder: str) -> dict[str, Tensor]:
        """Read the tensors of a folder from their raw bytes."""
        config = self.parsed(f"data/{folder}/model_{folder}_config.json")["config"]
        storages: dict[str, Tensor] = {}
        tensors = {}
        for name, entry in config.items():
            if entry["use_pickle"] or entry["tensor_meta"] is None:
                raise InputError(f"{name!r} in data/{folder} is a pickle, and unpickling can execute code")
            meta, file = entry["tensor_meta"], f"data/{folder}/{entry['path_name']}"
            if file not in storages:
                storages[file] = torch.frombuffer(bytearray(self._archive.read(self._entries[file])), dtype=torch.uint8)
            sizes, strides = ([value["as_int"] for value in meta[key]] for key in ("sizes", "strides"))
            # PyTorch checks that the tensor lies inside of the storage.
            storage = storages[file].view(_DTYPES[meta["dtype"]])
            tensors[name] = storage.as_strided(sizes, strides, meta["storage_offset"]["as_int"])
        return tensors


def _inputs(specs: list[dict[str, Any]], tensors: Mapping[str, Tensor]) -> tuple[list[str], dict[str, Tensor]]:
    """The names of the inputs of a program, and its weights by name."""
    names, weights = [], {}
    for spec in specs:
        ((kind, content),) = spec.items()
        if kind == "user_input":
            names.append(content["arg"]["as_tensor"]["name"])
        elif kind in ("parameter", "buffer", "tensor_constant"):
            weights[content["arg"]["name"]] = tensors[content[f"{kind}_name"]]
        else:
            raise InputError(f"its program has an input of kind {kind!r}")
    return names, weights


def _call(node: dict[str, Any]) -> _Call:
    target = node["target"]
    if target in _ARITHMETIC:
        run = _ARITHMETIC[target]
    elif target in _TARGETS:
        name, overload = target.split(".")[3:]
        run = getattr(getattr(torch.ops.aten, name), overload)
    else:
        raise InputError(f"its program calls {target!r}, which is not an operator of lightbert's models")
    inputs = [(entry["kind"] == _POSITIONAL, entry["name"], _argument(entry["arg"])) for entry in node["inputs"]]
    outputs = node["outputs"]
    several = len(outputs) != 1 or "as_tensors" in outputs[0]
    if len(outputs) == 1 and several:
        outputs = [{"as_tensor": value} for value in outputs[0]["as_tensors"]]
    return _Call(
        run=run,
        positional=[value for positional, _, value in inputs if positional],
        named={name: value for positional, name, value in inputs if not positional},
        results=[_result(output) for output in outputs if "as_none" not in output],
        several=several,
    )


def _result(output: dict[str, Any]) -> str:
    name = output["as_sym_int"]["as_name"] if "as_sym_int" in output else output["as_tensor"]["name"]
    if not isinstance(name, str):
        raise TypeError(f"the name of an output must be a string, got {name!r}")
    return name


def _argument(argument: dict[str, Any]) -> Any:
    ((kind, value),) = argument.items()
    match kind:
        case "as_tensor":
            return _Name(value["name"])
        case "as_tensors":
            return [_Name(tensor["name"]) for tensor in value]
        case "as_sym_int":
            return _Name(value["as_name"]) if "as_name" in value else int(value["as_int"])
        case "as_sym_ints":
            return [_argument({"as_sym_int": number}) for number in value]
        case "as_none":
            return None
        case "as_scalar_type":
            return _DTYPES[value]
        case "as_layout":
            return _LAYOUTS[value]
        case "as_memory_format":
            return _FORMATS[value]
        case "as_device" if value["type"] == "cpu":
            return torch.device("cpu")
        case "as_float":
            # Infinity is stored as a string.
            return float(value)
        case "as_int" | "as_bool" | "as_string" | "as_ints":
            return value
    raise InputError(f"its program has an argument of kind {kind!r}")


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, _Name):
        yield value.name
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _resolve(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, _Name):
        return values[value.name]
    return [_resolve(item, values) for item in value] if isinstance(value, list) else value
