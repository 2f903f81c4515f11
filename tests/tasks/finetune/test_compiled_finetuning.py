"""compile= in fine-tuning: the batches have many widths, and quantization-aware training runs eagerly."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_tasks import NO_DROPOUT, finetune, write_model, write_reviews
from tracing import traced_only

from extras import needs_metrics
from lightbert.config import from_mapping
from lightbert.models import folder
from lightbert.tasks.finetune import finetuning
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train.distributed import World

pytestmark = needs_metrics


@pytest.fixture(autouse=True)
def compile_calls() -> Iterator[mock.Mock]:
    with traced_only() as calls:
        yield calls


def weights(tmp_path: Path, compiled: str, *more: str) -> dict[str, torch.Tensor]:
    model = write_model(tmp_path / "model")
    files = [f"data.{split}={write_reviews(tmp_path / f'{split}.csv')}" for split in ("train", "dev")]
    keys = ("data.text=body", "data.label=topic", *NO_DROPOUT, "sort_over=1", f"compile={compiled}", *more)
    out = tmp_path / compiled
    finetune("classify", f"model={model}", *files, *keys, f"out={out}", "epochs=1")
    return folder.load(out / "final").state_dict()


def test_compiled_blocks_train_like_eager_ones(tmp_path: Path):
    torch._dynamo.utils.counters.clear()
    plain = weights(tmp_path, "none")
    assert "stats" not in torch._dynamo.utils.counters
    compiled = weights(tmp_path, "blocks")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-4, atol=1e-5)


def test_quantization_aware_training_runs_eagerly(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch._dynamo.utils.counters.clear()
    weights(tmp_path, "blocks", "quantization_aware=true")
    assert "quantization_aware=true runs eagerly, without compile=blocks\n" in capsys.readouterr().err
    assert "stats" not in torch._dynamo.utils.counters


@pytest.mark.parametrize(("compiled", "said"), [("auto", ""), ("none", ""), ("whole", "compile=whole")])
def test_eager_steps_are_only_mentioned_if_compilation_was_requested(
    compiled: str, said: str, capsys: pytest.CaptureFixture[str]
):
    recipe = from_mapping(
        FinetuneRecipe, {"model": "m", "out": "o", "task": "rte", "quantization_aware": True, "compile": compiled}
    )
    finetuning._compile(None, recipe, World(0, 1, torch.device("cuda")))
    error = capsys.readouterr().err
    assert said in error
    assert bool(error) == bool(said)
