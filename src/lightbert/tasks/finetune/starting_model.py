"""The initial model of a fine-tuning run: loaded or built, with the recipe's config changes and the task's head."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.config import from_mapping, to_mapping
from lightbert.data import tokenizer as tokenizers
from lightbert.data.features import IGNORE_INDEX, Features, Specials
from lightbert.errors import InputError
from lightbert.interop.load import Preset, find, read
from lightbert.models import PRESETS, Model, add_head, build
from lightbert.models.folder import check_ids, with_changes
from lightbert.nn.heads import TextHead, TokenClassification
from lightbert.nn.inference import Inference
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime


def starting_model(recipe: FinetuneRecipe) -> Model:
    """Load the recipe's model, or build its preset with weights drawn from the seed. The model has a tokenizer."""
    found = find(recipe.starting_model)
    if isinstance(found, Preset):
        if not recipe.tokenizer:
            raise InputError(
                f"the preset '{recipe.model}' requires tokenizer=PATH: add it, or give the folder of a trained model"
            )
        tokenizer = tokenizers.load(recipe.tokenizer)
        changes = {"vocab": tokenizer.get_vocab_size(), **recipe.change}
        preset = PRESETS[found.name]
        model = build(from_mapping(type(preset), {**to_mapping(preset), **changes}), seed=recipe.seed)
        check_ids(tokenizer, model.config.vocab, Path(recipe.tokenizer))
        model.tokenizer = tokenizer
        return model
    model = read(found)
    if recipe.tokenizer:
        model.tokenizer = tokenizers.load(recipe.tokenizer)
        check_ids(model.tokenizer, model.config.vocab, Path(recipe.tokenizer))
    if model.tokenizer is None:
        raise InputError(f"'{recipe.model}' has no tokenizer: add tokenizer=PATH")
    return with_changes(model, recipe.change) if recipe.change else model


def check_length(model: Model, length: int) -> None:
    """Check that the model has enough positions for rows of this length."""
    if 0 < model.positions < length:
        raise InputError(
            f"length must be <= {model.positions}, the model's positions, got {length}: set length={model.positions}"
        )


def set_head(model: Model, kind: Kind[Any], settings: dict[str, Any], seed: int) -> None:
    """Replace all heads by a new head for the task, initialized from the seed.

    If the new head has a dense layer, it is copied from the previous head or from BERT's pooler where the activations
    and the pools match. Chang et al. start RTE, MRPC and STS-B from MNLI in this way.
    """
    previous = _dense_layers(model)
    model.heads.clear()
    model.head_settings.clear()
    if model.pooling is not None:
        model.pooling = replace(model.pooling, projection=False)
    head = add_head(model, kind.head, {**kind.head_settings(), **settings}, seed=seed)
    if isinstance(head, TextHead) and head.dense is not None and _variant(settings) in previous:
        head.dense.load_state_dict(previous[_variant(settings)])
    model.labels = tuple(getattr(kind, "labels", ()))


def _dense_layers(model: Model) -> dict[tuple[str, str], dict[str, torch.Tensor]]:
    """The dense layers of the existing heads, by activation and pool."""
    found = {}
    if "pooler" in model.heads:
        found["tanh", "cls"] = _copy_state(model.heads["pooler"].get_submodule("dense"))
    for kind, settings in model.head_settings.items():
        if settings.get("hidden") and isinstance(model.heads[kind], TextHead):
            found[_variant(settings)] = _copy_state(model.heads[kind].get_submodule("dense"))
    return found


def _variant(settings: dict[str, Any]) -> tuple[str, str]:
    return settings.get("hidden") or "", settings.get("pool", "cls")


def _copy_state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


MAX_ROWS, MAX_SENTENCES = 4000, 500
"""The linear model is fitted on at most this many examples, or sentences with tags."""
PENALTY = 1e-2
"""The L2 penalty of the weights, for vectors with a standard deviation of 1."""
_MIN_DEVIATION = 0.1
"""The smallest standard deviation of a value, relative to the root mean square of the vectors, that is scaled to 1."""
_ITERATIONS = 100


def fit_output_layer(model: Model, kind: str, features: Features, seed: int) -> None:
    """Fit the output layer of a head without a hidden layer on the training data."""
    head = model.heads[kind]
    assert isinstance(head, TextHead | TokenClassification)
    assert features.targets is not None
    rows = np.arange(len(features))
    largest = MAX_ROWS if isinstance(head, TextHead) else MAX_SENTENCES
    if len(rows) > largest:
        rows = np.sort(np.random.default_rng(seed).choice(rows, largest, replace=False))
    vectors = _vectors(model, kind, features, rows)
    if isinstance(head, TextHead):
        targets = features.targets[rows]
    else:
        targets = np.concatenate([features.targets[features.starts[row] : features.starts[row + 1]] for row in rows])
        vectors, targets = vectors[targets != IGNORE_INDEX], targets[targets != IGNORE_INDEX]
    weight, bias = fit_linear(vectors, targets, head.output.out_features)
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
    """The pooled states of some rows, or the states of their tokens, as the output layer reads them."""
    head = model.heads[kind]
    assert isinstance(head, TextHead | TokenClassification)
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
    vectors = [vector for (vector,) in outputs]
    return np.stack(vectors) if isinstance(head, TextHead) else np.concatenate(vectors)
