"""Fine-tuning in packed rows: the losses of padded rows, and exact resumption."""

import json
from pathlib import Path

import pytest
import torch
from tiny_tasks import NO_DROPOUT, finetune, only, results, write_model, write_reviews

from extras import needs_metrics
from lightbert.config import assignments
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.recipes import read
from lightbert.tasks.finetune.grid import run_all
from lightbert.tasks.finetune.plan import plan
from lightbert.train.distributed import process_group
from lightbert.train.signals import Interruption

pytestmark = needs_metrics

RECIPE = "classify"
PACKED = ("packing=on", "sort_over=1")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv")
    dev = write_reviews(where / "dev.csv", rows=20)
    return (f"model={model}", f"data.train={train}", f"data.dev={dev}", "data.text=body", "data.label=topic")


def logged(out: Path) -> list[tuple[int, float, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["accuracy"]) for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize(("batch", "pool"), [(4, "cls"), (7, "cls"), (7, "mean-max")])
def test_losses_and_weights_are_those_of_padded_rows(start, tmp_path: Path, batch: int, pool: str):
    same = (*start, *NO_DROPOUT, f"batch={batch}", f"head.pool={pool}", "sort_over=1", "lr=1e-3")
    for packing in ("on", "off"):
        finetune(RECIPE, *same, f"packing={packing}", f"out={tmp_path / packing}")
    packed, padded = logged(tmp_path / "on"), logged(tmp_path / "off")
    assert len(packed) > 10
    assert [each[0] for each in packed] == [each[0] for each in padded]
    assert [each[1] for each in packed] == pytest.approx([each[1] for each in padded], abs=1e-4)
    assert [each[2] for each in packed] == pytest.approx([each[2] for each in padded])
    one, other = (folder.load(tmp_path / name / "final").state_dict() for name in ("on", "off"))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stop", [1, 5, 12])
def test_an_interrupted_run_resumes_exactly(start, tmp_path: Path, stop: int):
    finetune(RECIPE, *start, *PACKED, f"out={tmp_path / 'whole'}")
    assert not only(finetune(RECIPE, *start, *PACKED, f"out={tmp_path / 'parts'}", stop_after=stop)).finished
    assert only(finetune(RECIPE, *start, *PACKED, f"out={tmp_path / 'parts'}")).finished
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("sort_over=1",), "on"),
        ((), "off"),
        (("sort_over=1", "accumulate=2"), "off"),
        (("sort_over=1", "change.padding=released"), "off"),
    ],
)
def test_auto_packs_mixed_lengths_where_that_is_possible(start, tmp_path: Path, settings, expected):
    for packing in ("auto", expected):
        finetune(RECIPE, *start, *settings, "epochs=1", f"packing={packing}", f"out={tmp_path / packing}")
    assert results(tmp_path / "auto") == results(tmp_path / expected)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (("packing=on",), "packing=on requires sort_over=1, got sort_over=64; add sort_over=1"),
        ((*PACKED, "accumulate=2"), "packing=on requires accumulate=1, got accumulate=2; add accumulate=1"),
        ((*PACKED, "change.padding=released"), "packing=on requires a model with padding = 'masked', got 'released'"),
        (("packing=yes",), "unknown packing .yes.; choose from auto, on, off"),
    ],
)
def test_what_packed_rows_do_not_support_is_an_error(start, tmp_path: Path, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        finetune(RECIPE, *start, *changes, f"out={tmp_path}")


@pytest.mark.gpu
def test_captured_steps_of_packed_rows_match_plain_steps(tmp_path: Path):
    model = write_model(tmp_path / "model", dropout=0.0, attention_dropout=0.0)
    train = write_reviews(tmp_path / "train.csv")
    runs = []
    for graphed in ("false", "true"):
        files = (f"model={model}", f"data.train={train}", "data.text=body", "data.label=topic", "head.dropout=0.0")
        settings = ("epochs=4", "batch=4", "length=12", "lr=1e-3", "device=cuda", "workers=0", f"cuda_graph={graphed}")
        out = tmp_path / graphed
        with process_group("cuda") as world:
            run_all(plan(read(RECIPE), assignments([*files, *settings, *PACKED, f"out={out}"])), world, Interruption())
        runs.append([loss for _, loss, _ in logged(out)])
    plain, recorded = runs
    assert len(plain) > 40
    assert recorded == pytest.approx(plain, rel=3e-2, abs=3e-3)
