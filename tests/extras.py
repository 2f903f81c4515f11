"""Marks for tests that need an optional package: they are skipped where it is not installed."""

from importlib.util import find_spec

import pytest


def _needs(extra: str, *packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    reason = f"{', '.join(missing)} not installed: pip install 'lightbert[{extra}]'"
    return pytest.mark.skipif(bool(missing), reason=reason)


needs_metrics = _needs("metrics", "sklearn", "scipy")
needs_bm25 = _needs("retrieval", "bm25s")
needs_plots = _needs("plots", "matplotlib")
needs_sentence_transformers = _needs("hf", "sentence_transformers")
needs_trainer = _needs("hf", "transformers", "accelerate")
needs_onnx = _needs("export", "onnx", "onnxruntime")
needs_kernels = _needs("kernels", "triton")
needs_serve = _needs("serve", "fastapi", "uvicorn", "httpx")
needs_executorch = _needs("executorch", "executorch", "torchao")
