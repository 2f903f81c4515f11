"""Models of transformers trained with its Trainer follow the given recipe and seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from vocabularies import small_tokenizer

from benchmarks.peers import Peer, PeerRecipe
from extras import needs_trainer
from lightbert.data.features import Features
from lightbert.interop import huggingface
from lightbert.models import PRESETS, build

# transformers warns about missing hardware features.
pytestmark = [needs_trainer, pytest.mark.filterwarnings("ignore")]

ROWS = [[2, 5, 3, 7, 3], [2, 6, 3, 8, 9, 3]]
RECIPE = PeerRecipe(epochs=30, lr=3e-3, warmup=0.1)


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"vocab": 13, "positions": 16, "narrow": 16, "width": 16, "depth": 1, "n_heads": 2, "inner": 32}
    model = build(replace(PRESETS["bert-tiny"], **sizes), heads={"pooler": {}})
    model.tokenizer = small_tokenizer()
    where = tmp_path_factory.mktemp("peer") / "theirs"
    huggingface.write(model, where)
    return Peer(where, batch=2, device="cpu")


def features(targets):
    return Features.of(ROWS, [3, 3], targets=targets)


def test_labels_are_learned_and_the_seed_determines_the_result(peer):
    rows = features(np.array([1, 0]))
    found = [peer.finetune_and_predict(rows, rows, outputs=2, recipe=RECIPE, seed=seed) for seed in (0, 0, 1)]
    assert found[0].shape == (2, 2)
    assert found[0].argmax(axis=1).tolist() == [1, 0]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_one_output_is_a_number(peer):
    rows = features(np.array([0.5, -0.5], np.float32))
    found = peer.finetune_and_predict(rows, rows, outputs=1, recipe=RECIPE, seed=0)
    assert found.shape == (2, 1)
    assert found[0, 0] > found[1, 0]


def test_segments_distinguish_first_and_second_texts(peer):
    rows = features(np.array([1, 0]))
    still = replace(RECIPE, epochs=1, lr=1e-30)
    single = replace(rows, seconds=rows.lengths)
    answers = [peer.finetune_and_predict(rows, judged, outputs=2, recipe=still, seed=0) for judged in (rows, single)]
    assert not np.allclose(*answers)


def test_predictions_are_in_row_order_with_group_by_length(peer):
    # The second row is the longer one, which grouping would put first.
    rows = features(np.array([1, 0]))
    found = replace(peer, group_by_length=True).finetune_and_predict(rows, rows, outputs=2, recipe=RECIPE, seed=0)
    assert found.argmax(axis=1).tolist() == [1, 0]
