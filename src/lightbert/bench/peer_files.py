"""ONNX files of transformers' models, made with the tools of torch and ONNX Runtime."""

import importlib
import logging
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

from lightbert.errors import required


def exported_peer(model: nn.Module, positions: int) -> bytes:
    """Export a model of transformers by torch.onnx, with dynamic batch size and length."""
    example = torch.ones(2, 8, dtype=torch.int64)
    shape = {0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=3, max=positions or 512)}
    names = ("input_ids", "attention_mask", "token_type_ids")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "peer.onnx"
        with required("the runtime peer-onnx requires onnxscript", "onnxscript"):
            importlib.import_module("onnxscript")
        torch.onnx.export(
            model,
            (example, example, example),
            path,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=names,
            dynamic_shapes=(shape, shape, shape),
        )
        return path.read_bytes()


def quantized_peer(content: bytes) -> bytes:
    """Quantize the linear layers of a file by ONNX Runtime's quantize_dynamic, per channel."""
    from onnxruntime.quantization import quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "peer.onnx", Path(folder) / "int8.onnx"
        source.write_bytes(content)
        quantize_dynamic(source, target, per_channel=True)
        return target.read_bytes()
