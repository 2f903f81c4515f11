"""Fine-tuning and prediction compared with transformers' Trainer, with the same weights and inputs.

Both libraries train one epoch on the same examples of SST-2 with the same batch size, then predict them. Rounds
alternate, and medians are compared. lightbert runs a complete fine-tuning recipe, transformers `Trainer.train`; steps
are timed, on a GPU from the eleventh. The Trainer pads each batch to its longest row; it is also measured with
length-grouped sampling, and on a GPU in bfloat16 like lightbert. Prediction is timed from token ids to predictions.
lightbert also trains on packed rows. Finally, prediction of the real rows, grouped by length, packed, and on a GPU as a
CUDA graph, is compared with prediction of the same number of rows of their mean length, on a GPU in five times as many
rounds.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.pages import run_main
from benchmarks.peers import Peer
from benchmarks.timing import Candidates, medians
from lightbert.commands.report import show
from lightbert.data import tokenizer
from lightbert.data import tokenizer as tokenizers
from lightbert.data.features import Features, Specials
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import describe, find
from lightbert.models import Model, build, folder
from lightbert.nn.inference import Inference
from lightbert.tasks.datasets.glue import open_glue
from lightbert.tasks.example import Example, TextEncoder
from lightbert.tasks.finetune.finetuning import finetune
from lightbert.tasks.finetune.recipe import FinetuneRecipe, HeadSettings
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.predict.runtime import Runtime, run
from lightbert.tasks.predict.torch_runtime import Rows, TorchRuntime
from lightbert.train.distributed import process_group, resolve_device
from lightbert.train.signals import Interruption

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from tokenizers import Tokenizer


_CPU_EXAMPLES, _CPU_PREDICTED = 300, 1000
# Inference stores no activations, so the Trainer can predict larger batches.
_PREDICTED_AT_ONCE = 128
# A GPU predicts all rows in about a second, which varies by a third between rounds.
_RAGGED_ROUNDS_ON_GPU = 5


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


@dataclass(frozen=True)
class Comparison:
    """Medians of examples per second of each library, and of tokens per second of lightbert's prediction.

    rows: how the runtime puts texts into rows by default, a key of `ragged`.
    """

    model: str
    device: str
    trained: int
    predicted: int
    batch: int
    rounds: int
    ragged_rounds: int
    rows: str
    finetune: dict[str, float]
    predict: dict[str, float]
    ragged: dict[str, float]

    def metrics(self) -> dict[str, float]:
        """The rates relative to the default Trainer, to its fastest setting, and to texts of equal length.

        Those of packed rows are relative to the rows of fine-tuning and prediction that are sorted by length.
        """
        rates, grouped = self.ragged, self.ragged["grouped"]
        return {
            "finetune_ratio": self.finetune[OURS] / self.finetune["Trainer"],
            "finetune_ratio_fastest": self.finetune[OURS] / _fastest(self.finetune),
            "predict_ratio": self.predict[OURS] / self.predict["Trainer"],
            "predict_ratio_fastest": self.predict[OURS] / _fastest(self.predict),
            "ragged_ratio": rates[self.rows] / rates["fixed length"],
            "packed_finetune_ratio": self.finetune[PACKED] / self.finetune[OURS],
            **{f"{name}_predict_ratio": rates[name] / grouped for name in ("packed", "captured") if name in rates},
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"metrics": self.metrics(), **asdict(self)}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        where = f"{self.model}, {self.device}, median of {self.rounds}"
        return Group(
            _table(f"Fine-tuning on {self.trained:,} examples: {where}", "examples/s", self.finetune, OURS),
            _table(f"Prediction of {self.predicted:,} examples", "examples/s", self.predict, OURS),
            _table(f"lightbert's prediction: median of {self.ragged_rounds}", "tokens/s", self.ragged, self.rows),
        )


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
            finetune=medians(
                "fine-tuning", _finetune_candidates(material, settings, Path(place), warm), settings.rounds
            ),
            predict=medians("prediction", _predict_candidates(model, material), settings.rounds),
            ragged=medians("ragged rows", _ragged_candidates(model, material), ragged_rounds),
        )


@dataclass(frozen=True)
class EncodedExamples:
    """Examples and their token ids."""

    examples: list[Example]
    features: Features

    def tokens(self) -> list[list[int]]:
        """The token ids of each example."""
        tokens, starts = self.features.tokens.tolist(), self.features.starts.tolist()
        return [tokens[start:end] for start, end in pairwise(starts)]

    def labels(self) -> list[int]:
        """1 for positive, 0 for negative sentences."""
        return [int(example.label == "positive") for example in self.examples]


@dataclass(frozen=True)
class Material:
    """The same examples as files and as token ids, and the same weights for both libraries."""

    data: Path
    ours: Path
    peer: Path
    kind: Kind[Example]
    trained: EncodedExamples
    predicted: EncodedExamples


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
    plain = Peer(material.peer, batch, device.type)
    if device.type == "cpu":
        return {"Trainer": plain, "Trainer, by length": replace(plain, group_by_length=True)}
    return {"Trainer": plain, "Trainer, by length, bfloat16": replace(plain, group_by_length=True, bf16=True)}


def _predict(runtime: Runtime, model: Model, material: Material, features: Features) -> float:
    """Predict, and return the seconds from token ids to predictions."""
    start = time.perf_counter()
    outputs = run(runtime, features, Specials.of(model.require_tokenizer()))
    material.kind.predictions(material.predicted.examples, features, outputs)
    return time.perf_counter() - start


def _check_weights(model: Model, material: Material) -> None:
    """Check that both libraries compute the same logits."""
    row = material.trained.tokens()[0]
    with torch.no_grad():
        ours = model.heads["classify"](model(torch.tensor([row], device=model.table.device)))[0].cpu().numpy()
    expected = Peer(material.peer, 1, "cpu").logits(row)
    if not np.allclose(ours, expected, atol=1e-3):
        raise AssertionError(f"lightbert and transformers compute different logits: {ours} and {expected}")


OURS = "lightbert"
PACKED = "lightbert, packed rows"


def _fastest(rates: Mapping[str, float]) -> float:
    return max(rate for name, rate in rates.items() if name not in (OURS, PACKED))


def _table(title: str, unit: str, rates: Mapping[str, float], mine: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(unit, justify="right")
    table.add_column(f"{mine} relative to it", justify="right")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.1f}", "" if name == mine else f"{rates[mine] / rate:.2f} ×")
    return table


_DEV = 8


def prepare(
    where: Path, data: str, *, tokenizer: str, model: str, trained: int, predicted: int, length: int
) -> Material:
    """Write the first examples of SST-2's training set (0: all) and a model with random weights, in both layouts.

    Speed doesn't depend on the weights. Without a tokenizer, one is trained on the sentences.
    """
    task = open_glue("sst2", data)
    examples = task.examples("train")
    to_train, to_predict = examples[: trained or None], examples[: predicted or None]
    if len(to_train) < trained:
        raise InputError(
            f"examples must be <= {len(examples):,}, the size of '{data}', got {trained:,}; give 0 for all"
        )
    _write(where / "glue" / "SST-2" / "train.tsv", to_train)
    # A fine-tuning run evaluates on the dev set; it is small because the Trainer doesn't evaluate.
    _write(where / "glue" / "SST-2" / "dev.tsv", to_train[:_DEV])
    encoder = _tokenizer(tokenizer, examples)
    head = {"classify": {"labels": 2, "hidden": "gelu"}}
    config = replace(describe(find(model)).config, vocab=encoder.get_vocab_size())
    network = build(config, heads=head, seed=0)
    network.tokenizer, network.labels = encoder, ("negative", "positive")
    folder.save(network, where / "ours")
    huggingface.write(network, where / "peer")
    texts = TextEncoder(encoder, length)
    rows = [EncodedExamples(chosen, task.kind.features(chosen, texts)) for chosen in (to_train, to_predict)]
    return Material(where / "glue", where / "ours", where / "peer", task.kind, *rows)


def _write(path: Path, examples: list[Example]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{example.text}\t{int(example.label == 'positive')}\n" for example in examples)
    path.write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")


def _tokenizer(path: str, examples: list[Example]) -> "Tokenizer":
    if path:
        return tokenizers.load(path)
    return tokenizer.train([example.text for example in examples], "wordpiece", 30522)


def main(arguments: list[str] | None = None) -> None:
    """Print the rates of both libraries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder of GLUE or of SST-2, or hub")
    parser.add_argument("--tokenizer", default="", help="tokenizer.json or vocab.txt; default: train one")
    parser.add_argument("--model", default=Settings.model, help="a model that transformers implements, too")
    parser.add_argument("--examples", type=int, default=-1, help="0: all, -1: 300 on a CPU, all on a GPU")
    parser.add_argument("--batch", type=int, default=Settings.batch, help="examples per step")
    parser.add_argument("--length", type=int, default=Settings.length, help="maximum number of tokens")
    parser.add_argument("--rounds", type=int, default=Settings.rounds, help="number of alternating measurements")
    parser.add_argument("--device", default=Settings.device, help="auto, cpu or cuda")
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args(arguments))
    as_json = options.pop("json")
    show(compare(Settings(**options)), json=as_json)


if __name__ == "__main__":
    run_main(main)
