import json

import pytest
import torch
from originals import BODIES, CASES, CLASSES, assert_same_outputs, original, our_outputs, their_outputs

import lightbert
from lightbert.files import read_tensors
from lightbert.interop import huggingface

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(("body", "suffix"), CASES)
class TestEveryClassOfTransformers:
    def test_is_read_and_computes_the_same(self, body, suffix, tmp_path):
        model = original(body, suffix)
        model.save_pretrained(tmp_path)
        ours = lightbert.load(tmp_path)
        expected = CLASSES[BODIES[body][0]][suffix]
        raw_pooler = suffix == "Model" and not getattr(model.config, "classifier_activation", True)
        assert list(ours.heads) == ([] if raw_pooler else expected)
        theirs = their_outputs(model)
        if raw_pooler:
            theirs.pop("pooler_output")
        assert_same_outputs(our_outputs(ours), theirs)

    def test_round_trips_bit_for_bit_through_a_native_folder(self, body, suffix, tmp_path):
        original(body, suffix).save_pretrained(tmp_path / "before")
        lightbert.save(lightbert.load(tmp_path / "before"), tmp_path / "ours")
        huggingface.write(lightbert.load(tmp_path / "ours"), tmp_path / "after")
        before, after = (read_tensors(tmp_path / name / "model.safetensors") for name in ("before", "after"))
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)

    def test_is_written_so_that_transformers_computes_the_same(self, body, suffix, tmp_path):
        original(body, suffix).save_pretrained(tmp_path / "before")
        ours = lightbert.load(tmp_path / "before")
        huggingface.write(ours, tmp_path / "after")
        config = json.loads((tmp_path / "after" / "config.json").read_text())
        again, info = getattr(transformers, config["architectures"][0]).from_pretrained(
            tmp_path / "after", output_loading_info=True
        )
        assert type(again).__name__ == BODIES[body][0] + suffix
        assert not any(info.values())
        theirs = their_outputs(again.eval())
        if len(theirs) > len(ours.heads) + 1:
            theirs.pop("pooler_output")
        assert_same_outputs(our_outputs(ours), theirs)
