"""Fine-tuning and prediction compared with transformers' Trainer, with the same weights and inputs.

Both libraries train one epoch on the same examples of SST-2 with the same batch size, then predict them. Rounds
alternate, and medians are compared. lightbert runs a complete fine-tuning recipe, transformers `Trainer.train`; steps
are timed, on a GPU from the eleventh. The Trainer pads each batch to its longest row; it is also measured with
length-grouped sampling, and on a GPU in bfloat16 like lightbert. Prediction is timed from token ids to predictions.
lightbert also trains on packed rows. Finally, prediction of the real rows, grouped by length, packed, and on a GPU as a
CUDA graph, is compared with prediction of the same number of rows of their mean length, on a GPU in five times as many
rounds.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lightbert.bench.finetune_report import OURS, PACKED, Comparison
from lightbert.bench.sst2 import Material, prepare
from lightbert.data.examples.features import Features
from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError
from lightbert.interop.peers import Peer
from lightbert.models import Model, folder
from lightbert.nn.inference import Inference
from lightbert.progress import progress
from lightbert.tasks.finetune.finetuning import finetune
from lightbert.tasks.finetune.recipe import FinetuneRecipe, HeadSettings
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.predict.torch_runtime import Rows, TorchRuntime
from lightbert.train.distributed import process_group, resolve_device
from lightbert.train.signals import Interruption

_CPU_EXAMPLES, _CPU_PREDICTED = 300, 1000
# Inference stores no activations, so the Trainer can predict larger batches.
_PREDICTED_AT_ONCE = 128
# A GPU predicts all rows in about a second, which varies by a third between rounds.
_RAGGED_ROUNDS_ON_GPU = 5

Candidates = Mapping[str, Callable[[int], float]]
"""Name -> function that measures a rate, given the number of the round."""


@dataclass(frozen=True)
class Settings:
    """The options of the benchmark."""

    data: str
    tokenizer: str = ""
    model: str = "convbert-small"
    examples: int = -1
    """Training examples; 0: all, -1: 300 on a CPU and all on a GPU. At least 1,000 examples are predicted."""
    batch: int = 32
    length: int = 128
    rounds: int = 3
    device: str = "auto"


def compare(settings: Settings) -> Comparison:
    """Measure both libraries, and lightbert's prediction of rows of different and of equal length."""
    if settings.rounds < 1:
        raise InputError(f"rounds must be >= 1, got {settings.rounds}")
    device = resolve_device(settings.device)
    examples = settings.examples if settings.examples >= 0 else _CPU_EXAMPLES if device.type == "cpu" else 0
    # The first steps on a GPU may capture graphs. All steps on a CPU count: the Trainer starts with the longest rows.
    warm = 0 if device.type == "cpu" else 10
    with tempfile.TemporaryDirectory() as place:
        material = prepare(
            Path(place),
            settings.data,
            tokenizer=settings.tokenizer,
            model=settings.model,
            trained=examples,
            predicted=max(examples, _CPU_PREDICTED) if examples else 0,
            length=settings.length,
        )
        if len(material.trained.examples) < max(2 * warm, 2) * settings.batch:
            raise InputError(
                f"{examples:,} examples are too few for batches of {settings.batch}; increase examples or reduce batch"
            )
        model = folder.load(material.ours).to(device)
        _check_weights(model, material)
        rows = material.predicted
        ragged_rounds = settings.rounds * (1 if device.type == "cpu" else _RAGGED_ROUNDS_ON_GPU)
        return Comparison(
            model=settings.model,
            device=torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads",
            trained=len(material.trained.examples),
            predicted=len(rows.examples),
            batch=settings.batch,
            rounds=settings.rounds,
            ragged_rounds=ragged_rounds,
            rows=_runtime(model).rows,
            finetune=_medians(
                "fine-tuning", _finetune_candidates(material, settings, Path(place), warm), settings.rounds
            ),
            predict=_medians("prediction", _predict_candidates(model, material), settings.rounds),
            ragged=_medians("ragged rows", _ragged_candidates(model, material), ragged_rounds),
        )


def _finetune_candidates(material: Material, settings: Settings, where: Path, warm: int) -> Candidates:
    """Examples per second of fine-tuning."""

    def ours(packed: bool, number: int) -> float:
        recipe = FinetuneRecipe(
            model=str(material.ours),
            task="sst2",
            data=str(material.data),
            out=str(where / f"{'packed' if packed else 'sorted'}-{number}"),
            **({"packing": "on", "sort_over": 1} if packed else {}),  # type: ignore[arg-type]
            head=HeadSettings(hidden="gelu"),
            seed=number,
            epochs=1.0,
            batch=settings.batch,
            length=settings.length,
            checkpoint_every=0,
            log_every=warm,
            device=settings.device,
        )
        with process_group(settings.device) as world:
            return finetune(recipe, world, Interruption()).rows_per_second

    peers = _peers(material, settings.batch, resolve_device(settings.device))
    rows, labels = material.trained.tokens(), material.trained.labels()
    return {
        OURS: partial(ours, False),
        PACKED: partial(ours, True),
        **{name: partial(peer.finetune, rows, labels, warm) for name, peer in peers.items()},
    }


def _predict_candidates(model: Model, material: Material) -> Candidates:
    """Examples per second of prediction."""
    peers = _peers(material, _PREDICTED_AT_ONCE, model.table.device)
    rows, features, runtime = material.predicted.tokens(), material.predicted.features, _runtime(model)
    # Warm up before the first round.
    _predict(runtime, model, material, features)
    next(iter(peers.values())).predict(rows[:_PREDICTED_AT_ONCE])
    return {
        OURS: lambda _: len(features) / _predict(runtime, model, material, features),
        **{name: lambda _, peer=peer: peer.predict(rows) for name, peer in peers.items()},  # type: ignore[misc]
    }


def _ragged_candidates(model: Model, material: Material) -> Candidates:
    """Tokens per second of lightbert's prediction: real rows, and the same tokens in rows of the mean length."""
    features = material.predicted.features
    length = round(float(features.lengths.mean()))
    rows = np.resize(features.tokens, (len(features), length)).tolist()
    fixed = Features.of(rows, [length] * len(features))
    layouts: list[Rows] = ["grouped", "packed"]
    if model.device.type == "cuda":
        layouts.append("captured")
    candidates = {str(name): (_runtime(model, name), features) for name in layouts}
    candidates["fixed length"] = (_runtime(model, "grouped"), fixed)
    for runtime, each in candidates.values():
        _predict(runtime, model, material, each)
    return {
        name: lambda _, runtime=runtime, each=each: len(each.tokens) / _predict(runtime, model, material, each)  # type: ignore[misc]
        for name, (runtime, each) in candidates.items()
    }


def _runtime(model: Model, rows: Rows | None = None) -> TorchRuntime:
    return TorchRuntime(Inference(model, "classify"), rows)


def _peers(material: Material, batch: int, device: torch.device) -> dict[str, Peer]:
    plain = Peer(material.theirs, batch, device.type)
    if device.type == "cpu":
        return {"Trainer": plain, "Trainer, by length": replace(plain, group_by_length=True)}
    return {"Trainer": plain, "Trainer, by length, bfloat16": replace(plain, group_by_length=True, bf16=True)}


def _predict(runtime: Runtime, model: Model, material: Material, features: Features) -> float:
    """Predict, and return the seconds from token ids to predictions."""
    start = time.perf_counter()
    outputs = run(runtime, features, Specials.of(model.require_tokenizer()))
    material.kind.predictions(material.predicted.examples, features, outputs)
    return time.perf_counter() - start


def _medians(label: str, candidates: Candidates, rounds: int) -> dict[str, float]:
    """Measure all candidates in alternation."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    with progress(label, total=rounds * len(candidates), unit="runs") as bar:
        for number in range(rounds):
            for name, measure in candidates.items():
                found[name].append(measure(number))
                bar.advance()
    return {name: statistics.median(rates) for name, rates in found.items()}


def _check_weights(model: Model, material: Material) -> None:
    """Check that both libraries compute the same logits."""
    row = material.trained.tokens()[0]
    with torch.no_grad():
        ours = model.heads["classify"](model(torch.tensor([row], device=model.table.device)))[0].cpu().numpy()
    theirs = Peer(material.theirs, 1, "cpu").logits(row)
    if not np.allclose(ours, theirs, atol=1e-3):
        raise AssertionError(f"lightbert and transformers compute different logits: {ours} and {theirs}")
