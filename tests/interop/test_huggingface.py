"""Every class of transformers is read, kept in a native folder, and written again, with equal outputs and weights."""

import json

import pytest
import torch
from originals import BODIES, CASES, CLASSES, assert_same_outputs, original, our_outputs, their_outputs

import lightbert
from lightbert.files import read_tensors
from lightbert.interop import huggingface

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("body", BODIES)
def test_every_class_of_transformers_computes_the_same_and_round_trips(body, tmp_path_factory, subtests):
    for suffix in (suffix for name, suffix in CASES if name == body):
        with subtests.test(suffix=suffix):
            folder = tmp_path_factory.mktemp(suffix)
            model = original(body, suffix)
            model.save_pretrained(folder / "before")
            ours = lightbert.load(folder / "before")
            # A model from transformers was trained to read the padding.
            assert ours.config.padding == ("masked" if body.startswith(("bert", "electra")) else "released")
            raw_pooler = suffix == "Model" and not getattr(model.config, "classifier_activation", True)
            assert list(ours.heads) == ([] if raw_pooler else CLASSES[BODIES[body][0]][suffix])
            theirs = their_outputs(model)
            if raw_pooler:
                theirs.pop("pooler_output")
            outputs = our_outputs(ours)
            assert_same_outputs(outputs, theirs)
            # Bit for bit through a native folder.
            lightbert.save(ours, folder / "ours")
            huggingface.write(lightbert.load(folder / "ours"), folder / "after")
            before, after = (read_tensors(folder / name / "model.safetensors") for name in ("before", "after"))
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
            # transformers reads the written folder, and computes the same.
            config = json.loads((folder / "after" / "config.json").read_text())
            again, info = getattr(transformers, config["architectures"][0]).from_pretrained(
                folder / "after", output_loading_info=True
            )
            assert type(again).__name__ == BODIES[body][0] + suffix
            assert not any(info.values())
            theirs = their_outputs(again.eval())
            if len(theirs) > len(ours.heads) + 1:
                theirs.pop("pooler_output")
            assert_same_outputs(outputs, theirs)
