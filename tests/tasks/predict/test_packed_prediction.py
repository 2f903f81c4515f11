"""Prediction in packed rows: the outputs of rows grouped by length, in few shapes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import small_tokenizer

import lightbert
from lightbert.data.features import Features, Specials
from lightbert.errors import InputError
from lightbert.models import Model, build, preset
from lightbert.nn.inference import POOLS, Inference, LayerMaps, TextVector
from lightbert.tasks.predict import torch_runtime
from lightbert.tasks.predict.runtime import PackingRuntime, packed_batches, run
from lightbert.tasks.predict.torch_runtime import CapturedForward, TorchRuntime
from randomised import randomised

SPECIALS = Specials(0, 2, 3, 4)
VOCAB = 40
HEADS = {
    "classify": {"labels": 3},
    "regress": {},
    "nsp": {},
    "pooler": {},
    "tokens": {"labels": 3},
    "rtd": {},
    "mlm": {},
    "span": {},
    "beam": {"inner": 8, "beam": 3},
}


def texts(count: int = 30, longest: int = 150, seed: int = 0) -> Features:
    rng = np.random.default_rng(seed)
    lengths = [*rng.gamma(2.0, 8.0, count - 2).astype(int).clip(3, longest).tolist(), longest, 128]
    return Features.of([rng.integers(5, VOCAB, n).tolist() for n in lengths], [(n + 1) // 2 for n in lengths])


def make(name: str = "convbert-tiny", head: str = "classify", **changes: object) -> Model:
    config = replace(preset(name), vocab=VOCAB, depth=1, **{"positions": 256} | changes)
    return randomised(build(config, heads={head: HEADS[head]}, seed=0))


def assert_equal(packed: list, grouped: list) -> None:
    assert len(packed) == len(grouped)
    for one, other in zip(packed, grouped, strict=True):
        assert len(one) == len(other)
        for found, expected in zip(one, other, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_packed_rows_give_the_outputs_of_grouped_rows():
    for head in HEADS:
        inference, features = Inference(make(head=head), head), texts()
        grouped = run(TorchRuntime(inference, "grouped"), features, SPECIALS)
        for batch in (0, 3):
            assert_equal(run(TorchRuntime(inference, "packed"), features, SPECIALS, batch), grouped)


def test_packed_rows_give_pooled_heads_the_outputs_of_grouped_rows():
    for pool in ["mean", "max", "mean-max"]:
        config = replace(preset("convbert-tiny"), vocab=VOCAB, depth=1, positions=256)
        model = randomised(build(config, heads={"classify": {"labels": 3, "pool": pool}}, seed=0))
        inference, features = Inference(model, "classify"), texts()
        grouped, packed = (run(TorchRuntime(inference, rows), features, SPECIALS) for rows in ("grouped", "packed"))
        assert_equal(packed, grouped)


def test_every_family_predicts_the_same_in_packed_rows():
    for name in ["bert-tiny", "composite-tiny", "mobilebert-nano", "ib-bert-nano"]:
        inference, features = Inference(make(name), "classify"), texts(12)
        grouped, packed = (run(TorchRuntime(inference, rows), features, SPECIALS) for rows in ("grouped", "packed"))
        assert_equal(packed, grouped)


def test_packed_rows_give_the_vectors_of_grouped_rows():
    for pool in POOLS:
        inference, features = TextVector(make(), pool), texts()
        grouped, packed = (run(TorchRuntime(inference, rows), features, SPECIALS) for rows in ("grouped", "packed"))
        assert_equal(packed, grouped)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 2000), st.sampled_from([0, 300, 512]))
def test_every_text_is_in_one_batch_and_the_shapes_are_few(lengths, max_tokens, positions):
    features = Features.of([[9] * length for length in lengths], lengths)
    seen, shapes = [], set()
    for chosen, rows in packed_batches(features, 0, max_tokens, positions=positions):
        assert rows.lengths[: len(chosen)].tolist() == features.lengths[chosen].tolist()
        assert (rows.texts > 0).sum() == features.lengths[chosen].sum()
        height, width = rows.ids.shape
        assert height * width <= max_tokens or height == 1
        assert height.bit_count() == 1 or height == max_tokens // width
        assert not positions or width <= positions
        assert len(rows.starts) == height * (width // 4)
        seen += chosen.tolist()
        shapes.add((height, width))
    assert sorted(seen) == list(range(len(lengths)))
    # One full shape and one last shape for each of 128, 256 and 512 tokens.
    assert len(shapes) <= 6


def test_short_texts_fill_most_of_the_rows():
    lengths = np.random.default_rng(0).gamma(2.0, 7.0, 2000).astype(int).clip(3, 128).tolist()
    features = Features.of([[9] * length for length in lengths], lengths)
    batches = [rows.texts for _, rows in packed_batches(features, 0, 4096)]
    assert sum((rows > 0).sum() for rows in batches) / sum(rows.size for rows in batches) > 0.95


def test_a_text_beyond_the_positions_is_the_error_of_the_encoder():
    model = make(positions=64)
    with pytest.raises(InputError, match="at most 64 tokens, got 70"):
        run(TorchRuntime(Inference(model, "classify"), "packed"), texts(2, 70), SPECIALS)


def test_without_texts_there_are_no_outputs():
    assert run(TorchRuntime(Inference(make(), "classify"), "packed"), Features.of([], []), SPECIALS) == []


def test_a_cpu_groups_rows_by_length():
    runtime = TorchRuntime(Inference(make(), "classify"))
    assert isinstance(runtime, PackingRuntime)
    assert not runtime.packs


@pytest.mark.parametrize("rows", ["packed", "captured"])
def test_models_that_read_the_padding_and_attention_maps_are_not_packed(rows):
    with pytest.raises(InputError, match=r"rows must be 'grouped' .*released"):
        TorchRuntime(Inference(make(padding="released"), "classify"), rows)
    with pytest.raises(InputError, match="rows must be 'grouped' for attention maps"):
        TorchRuntime(LayerMaps(make(), 1), rows)


def test_a_cuda_graph_requires_a_gpu():
    with pytest.raises(InputError, match="captured on a GPU only, got the device 'cpu'"):
        TorchRuntime(Inference(make(), "classify"), "captured")


def test_texts_are_predicted_and_encoded_the_same_in_packed_rows(monkeypatch):
    model = lightbert.build(
        replace(preset("convbert-tiny"), vocab=13), heads={"classify": {"labels": 2}}, seed=0
    ).eval()
    model.tokenizer = small_tokenizer()
    given = ["good film", "a bad film was the film", "", "good " * 20]
    expected, vectors = model.predict(given), model.encode(given)
    packed = TorchRuntime.submit_packed
    calls = []
    monkeypatch.setattr(TorchRuntime, "submit_packed", lambda self, rows: calls.append(rows) or packed(self, rows))
    monkeypatch.setitem(torch_runtime.DEFAULT_ROWS, "cpu", "packed")
    for one, other in zip(model.predict(given), expected, strict=True):
        assert one["label"] == other["label"]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)
    np.testing.assert_allclose(model.encode(given), vectors, atol=1e-5)
    assert calls


INFERENCES = {
    **{head: lambda head=head: Inference(make(head=head).cuda(), head) for head in HEADS},
    **{f"{pool} vector": lambda pool=pool: TextVector(make().cuda(), pool) for pool in POOLS},
    **{
        name: lambda name=name: Inference(make(name).cuda(), "classify")
        for name in ("bert-tiny", "composite-tiny", "mobilebert-nano", "ib-bert-nano")
    },
}


@pytest.mark.gpu
def test_a_captured_forward_pass_gives_the_outputs_of_packed_rows():
    for case in INFERENCES:
        inference, features = INFERENCES[case](), texts(400)
        packed = run(TorchRuntime(inference, "packed"), features, SPECIALS, batch=8)
        runtime = TorchRuntime(inference, "captured")
        for _ in range(2):
            captured = run(runtime, features, SPECIALS, batch=8)
            assert len(captured) == len(packed)
            for one, other in zip(captured, packed, strict=True):
                for found, expected in zip(one, other, strict=True):
                    np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
def test_inputs_of_one_shape_are_captured_once_and_replayed():
    calls = []
    forward = CapturedForward(lambda x: calls.append(1) or (2 * x,), torch.device("cuda"))
    with torch.inference_mode():
        for number in range(6):
            (doubled,) = forward(torch.full((3,), float(number)))
            assert doubled.tolist() == [2.0 * number] * 3
    assert len(calls) == 3


@pytest.mark.gpu
def test_a_gpu_captures_forward_passes_over_packed_rows():
    assert TorchRuntime(Inference(make().cuda(), "classify")).rows == "captured"
    assert TorchRuntime(Inference(make(padding="released").cuda(), "classify")).rows == "grouped"
    assert TorchRuntime(LayerMaps(make().cuda(), 1)).rows == "grouped"


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [None, "captured"])
def test_hooks_of_layers_are_called_for_every_batch(rows):
    model, calls = make().cuda(), []
    model.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    runtime = TorchRuntime(Inference(model, "classify"), rows)
    for _ in range(4):
        run(runtime, texts(2), SPECIALS)
    # Two texts have two widths of rows.
    assert len(calls) == 8


@pytest.mark.gpu
def test_a_captured_pass_reads_weights_that_change_in_place():
    inference, features = Inference(make().cuda(), "classify"), texts(4)
    runtime = TorchRuntime(inference)
    for _ in range(4):
        before = run(runtime, features, SPECIALS)
    with torch.no_grad():
        inference.encoder.heads["classify"].output.bias += 1.0
    after, expected = (run(each, features, SPECIALS) for each in (runtime, TorchRuntime(inference, "packed")))
    assert_equal(after, expected)
    assert all((one[0] > other[0]).all() for one, other in zip(after, before, strict=True))
