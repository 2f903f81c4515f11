"""The comparison with transformers' Trainer measures the same work for both; rates are not tested."""

import json
import random

import pytest

from benchmarks.finetuning import OURS, PACKED, Comparison, Settings, compare, prepare
from extras import needs_trainer
from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.interop import huggingface
from lightbert.models import folder


@pytest.fixture
def glue(tmp_path):
    choose = random.Random(0)
    rows = [f"{' '.join(choose.choices('abcdefg', k=choose.randint(1, 9)))}\t{choose.randint(0, 1)}" for _ in range(12)]
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_both_libraries_get_the_same_rows_and_weights(glue, tmp_path):
    material = prepare(tmp_path / "m", str(glue), tokenizer="", model="convbert-tiny", trained=8, predicted=0, length=6)
    assert len(material.trained.tokens()) == 8
    assert len(material.predicted.tokens()) == 12
    assert max(map(len, material.predicted.tokens())) == 6
    assert set(material.trained.labels()) == {0, 1}
    ours, peer = folder.load(material.ours), huggingface.read(material.peer)
    assert ours.state_dict().keys() == peer.state_dict().keys()
    assert all((tensor == peer.state_dict()[name]).all() for name, tensor in ours.state_dict().items())
    assert len(read_tensors(material.peer / "model.safetensors")) > 0


# transformers warns about missing hardware.
@pytest.mark.filterwarnings("ignore")
@needs_trainer
def test_the_comparison_runs_and_names_both_libraries(glue):
    found = compare(Settings(str(glue), model="convbert-tiny", examples=8, batch=2, length=8, rounds=1, device="cpu"))
    assert list(found.predict) == [OURS, "Trainer", "Trainer, by length"]
    assert list(found.finetune) == [OURS, PACKED, "Trainer", "Trainer, by length"]
    assert (list(found.ragged), found.rows) == (["grouped", "packed", "fixed length"], "grouped")
    assert all(rate > 0 for rates in (found.finetune, found.predict, found.ragged) for rate in rates.values())
    assert (found.trained, found.predicted) == (8, 12)
    assert json.loads(json.dumps(found.to_json()))["metrics"] == found.metrics()


def test_ratios_are_relative_to_the_default_and_to_the_fastest_trainer_and_to_sorted_rows():
    found = Comparison(
        model="convbert-small",
        device="2 CPU threads",
        trained=300,
        predicted=1000,
        batch=32,
        rounds=3,
        ragged_rounds=3,
        rows="packed",
        finetune={OURS: 30.0, PACKED: 36.0, "Trainer": 10.0, "Trainer, by length": 12.0},
        predict={OURS: 100.0, "Trainer": 40.0, "Trainer, by length": 50.0},
        ragged={"grouped": 80.0, "packed": 95.0, "captured": 160.0, "fixed length": 100.0},
    )
    assert found.metrics() == {
        "finetune_ratio": 3.0,
        "finetune_ratio_fastest": 2.5,
        "predict_ratio": 2.5,
        "predict_ratio_fastest": 2.0,
        "ragged_ratio": 0.95,
        "packed_finetune_ratio": 1.2,
        "packed_predict_ratio": 95 / 80,
        "captured_predict_ratio": 2.0,
    }


def test_invalid_options_raise_an_error(glue):
    for changes, sentence in (
        ({"examples": 13}, "examples must be <= 12, the size of .*, got 13"),
        ({"examples": 3}, "3 examples are too few for batches of 2"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"device": "tpu9"}, "unknown device 'tpu9'"),
    ):
        settings = {"data": str(glue), "model": "convbert-tiny", "batch": 2, "device": "cpu", "examples": 8} | changes
        with pytest.raises(InputError, match=sentence):
            compare(Settings(**settings))
