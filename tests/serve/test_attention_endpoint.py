"""`/v1/attention`: the maps and kernels are those of the model, within limits; an exported model has none."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from servers import deep_text_model, running, text_model

import lightbert
from extras import needs_onnx
from lightbert.nn.inference import LayerMaps
from lightbert.nn.record import Record
from lightbert.serve.endpoints import MOST_TEXTS
from lightbert.tasks.kinds.classify import Classify

TEXTS = ["good film was bad", "a film", "the good film was bad."]


def recorded(model, text, layer):
    """The tokens, the maps [H, T, T] and the kernels [H, T, K] of a layer, by a separate forward pass."""
    pieces = model.tokenizer.encode(text, add_special_tokens=False)
    cls, sep = (model.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    record = Record()
    with torch.no_grad():
        model(torch.tensor([[cls, *pieces.ids, sep]]), record=record)
    kernels = record.kernels[layer - 1][0].transpose(0, 1) if record.kernels else []
    return ["[CLS]", *pieces.tokens, "[SEP]"], record.attention[layer - 1][0], kernels


def test_the_answer_has_the_maps_and_kernels_of_the_layer():
    model = deep_text_model(3)
    with running(model) as client:
        answer = client.post("/v1/attention", json={"texts": TEXTS, "layer": 2}).json()
    for text, found in zip(TEXTS, answer["maps"], strict=True):
        tokens, maps, kernels = recorded(model, text, 2)
        assert found["tokens"] == tokens
        assert (found["layer"], found["layers"]) == (2, 3)
        np.testing.assert_allclose(found["attention"], maps, atol=1e-4)
        np.testing.assert_allclose(found["kernels"], kernels, atol=1e-4)


def test_requests_for_different_layers_are_answered_at_the_same_time():
    model = deep_text_model(3)
    with running(model) as client, ThreadPoolExecutor(6) as pool:
        ask = lambda layer: client.post("/v1/attention", json={"texts": TEXTS[:1], "layer": layer}).json()  # noqa: E731
        answers = [*pool.map(ask, [1, 2, 3, 1, 2, 3])]
    for layer, answer in zip([1, 2, 3, 1, 2, 3], answers, strict=True):
        np.testing.assert_allclose(answer["maps"][0]["attention"], recorded(model, TEXTS[0], layer)[1], atol=1e-4)


def test_a_model_without_dynamic_convolution_has_no_kernels():
    with running(deep_text_model(3, "bert-tiny")) as client:
        [found] = client.post("/v1/attention", json={"texts": ["good film"]}).json()["maps"]
    assert found["kernels"] == []
    assert found["layer"] == 1


def test_a_pair_is_one_row_and_long_texts_are_truncated():
    with running(text_model(Classify(("bad", "good")))) as client:
        answer = client.post("/v1/attention", json={"texts": [["good film", "bad"], "good " * 40]}).json()
    assert answer["maps"][0]["tokens"] == ["[CLS]", "good", "film", "[SEP]", "bad", "[SEP]"]
    assert len(answer["maps"][1]["tokens"]) == 16
    assert answer["truncated"] == 1


def test_wrong_requests_get_a_sentence():
    for request_, sentence in [
        ({"texts": ["good"], "layer": 4}, "'layer' must be less than or equal to 3, got 4"),
        ({"texts": ["good"], "layer": 0}, "'layer' must be greater than or equal to 1, got 0"),
        ({"texts": ["good"] * (MOST_TEXTS + 1)}, f"takes at most {MOST_TEXTS} texts per request, got {MOST_TEXTS + 1}"),
        ({"texts": [3]}, "texts[0] must be a string or a pair of strings, got 3"),
    ]:
        with running(deep_text_model(3)) as client:
            answer = client.post("/v1/attention", json=request_)
        assert answer.status_code == 400
        assert sentence in answer.json()["error"]


@needs_onnx
def test_an_exported_model_says_that_it_has_no_maps(tmp_path):
    from lightbert.deploy.export import export

    export(text_model(Classify(("bad", "good"))), tmp_path / "out")
    with running(lightbert.load(tmp_path / "out")) as client:
        answer = client.post("/v1/attention", json={"texts": ["good"]})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("an exported model records no attention maps; serve the folder")


def test_only_the_layers_up_to_the_chosen_one_run():
    model = deep_text_model(3)
    runs = []
    for number, block in enumerate(model.blocks, start=1):
        block.register_forward_hook(lambda *_, number=number: runs.append(number))
    maps = LayerMaps(model, 2)(torch.tensor([[2, 5, 6, 3]]))
    assert runs == [1, 2]
    torch.testing.assert_close(maps.attention.sum(dim=-1), torch.ones(1, 4, maps.attention.shape[2]))
