"""Initialize the output layer with a linear model that is fitted on the vectors of the frozen encoder.

Fine-tuning that starts from a random output layer distorts the encoder before the layer has learned anything, which
costs most with few examples or many labels (Kumar et al., 2022, "LP-FT").
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.data.examples.features import Features
from lightbert.data.examples.specials import Specials
from lightbert.models import Model
from lightbert.nn.heads.text import TextHead
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.forward import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime

MAX_ROWS = 4000
"""The linear model is fitted on at most this many examples."""
PENALTY = 1e-2
"""The L2 penalty of the weights, for vectors with a standard deviation of 1."""
_MIN_DEVIATION = 0.1
"""The smallest standard deviation of a value, relative to the root mean square of the vectors, that is scaled to 1."""
_ITERATIONS = 100


def fit_output_layer(model: Model, kind: str, features: Features, seed: int) -> None:
    """Fit the output layer of a head without a hidden layer on the training data."""
    head = model.heads[kind]
    assert isinstance(head, TextHead)
    assert head.dense is None
    assert features.targets is not None
    rows = np.arange(len(features))
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MAX_ROWS, replace=False))
    vectors = _vectors(model, kind, features, rows)
    weight, bias = fit_linear(vectors, features.targets[rows], head.output.out_features)
    with torch.no_grad():
        head.output.weight.copy_(weight)
        head.output.bias.copy_(bias)


def fit_linear(vectors: NDArray[Any], targets: NDArray[Any], outputs: int) -> tuple[Tensor, Tensor]:
    """Fit a linear model by L-BFGS: targets are classes [n], 0/1 labels [n, outputs], or numbers [n]."""
    x = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    y = torch.from_numpy(np.ascontiguousarray(targets))
    # Without the limit, values that hardly differ would get weights so large that fine-tuning diverges.
    mean, std = x.mean(0), x.std(0).clamp(min=float(_MIN_DEVIATION * x.square().mean().sqrt()))
    x = (x - mean) / std
    weight, bias = torch.zeros(outputs, x.shape[1], requires_grad=True), torch.zeros(outputs, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = _loss(F.linear(x, weight, bias), y) + PENALTY / 2 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    scaled = weight.detach() / std
    return scaled, bias.detach() - scaled @ mean


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.ndim == 2:
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(1).mean()
    if targets.is_floating_point():
        return F.mse_loss(outputs[:, 0], targets)
    return F.cross_entropy(outputs, targets)


def _vectors(model: Model, kind: str, features: Features, rows: NDArray[Any]) -> NDArray[np.float32]:
    """The pooled states of some rows, as the output layer reads them."""
    head = model.heads[kind]
    assert isinstance(head, TextHead)
    output, head.output = head.output, nn.Identity()  # type: ignore[assignment]
    starts, lengths = features.starts[rows], features.lengths[rows]
    chosen = Features.of(
        [features.tokens[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)],
        features.seconds[rows].tolist(),
    )
    try:
        outputs = run(
            TorchRuntime(Inference(model, kind), "packed" if model.device.type == "cuda" else None),
            chosen,
            Specials.of(model.require_tokenizer()),
        )
    finally:
        head.output = output
    return np.stack([vector for (vector,) in outputs])
