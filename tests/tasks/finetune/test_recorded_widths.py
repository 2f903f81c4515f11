"""Fine-tuning with CUDA graphs equals plain steps for batches of several widths."""

import json
from pathlib import Path

import pytest
from tiny_tasks import write_model, write_reviews

from lightbert.config import assignments
from lightbert.recipes import read
from lightbert.tasks.finetune.grid import run_all
from lightbert.tasks.finetune.plan import plan
from lightbert.train.distributed import process_group
from lightbert.train.signals import Interruption

RECIPE = "classify"


@pytest.mark.gpu
def test_losses_match_plain_steps_of_the_same_widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model", dropout=0.0, attention_dropout=0.0)
    train = write_reviews(tmp_path / "train.csv")
    # Several widths for texts of a dozen tokens, in both runs.
    monkeypatch.setattr("lightbert.tasks.finetune.finetuning._GRAPH_WIDTH_MULTIPLE", 2)
    runs = []
    for graphed in ("false", "true"):
        files = (f"model={model}", f"data.train={train}", "data.text=body", "data.label=topic", "head.dropout=0.0")
        settings = ("epochs=4", "batch=4", "length=12", "lr=1e-3", "device=cuda", "workers=0", f"cuda_graph={graphed}")
        out = tmp_path / graphed
        with process_group("cuda") as world:
            run_all(plan(read(RECIPE), assignments([*files, *settings, f"out={out}"])), world, Interruption())
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        runs.append([line["loss"] for line in lines if line["kind"] == "train"])
    plain, recorded = runs
    assert len(plain) > 40
    assert recorded == pytest.approx(plain, rel=3e-2, abs=3e-3)
