"""Every endpoint answers like the library, for models in torch and exported ones."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from every_kind import KINDS, REVIEWS, assert_close, words
from servers import running, text_model

import lightbert
from extras import needs_onnx
from lightbert.analysis.suspicion import Detector
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.errors import InputError
from lightbert.models import add_head
from lightbert.nn.pooling_settings import Pooling
from lightbert.serve.models import endpoints_of
from lightbert.tasks.kinds.tokens import Tokens


def records_for(kind):
    choose = random.Random(7)
    if kind.name == "spans":
        return [{"question": words(choose, 4), "context": words(choose, 20)} for _ in range(9)]
    return [{"text": words(choose, 24)} for _ in range(9)]


def test_predictions_are_those_of_the_model_with_the_fields_of_the_text():
    for kind, settings in KINDS:
        model, records = text_model(kind, **settings), records_for(kind)
        expected = [record | prediction for record, prediction in zip(records, model.predict(records), strict=True)]
        with running(model) as client:
            answer = client.post("/v1/predict", json={"texts": records})
            assert answer.status_code == 200
            assert_close(answer.json()["predictions"], expected)
            short = [tuple(record.values()) if kind.name == "spans" else record["text"] for record in records]
            assert_close(client.post("/v1/predict", json={"texts": short}).json()["predictions"], expected)


def test_the_command_line_and_the_server_give_the_same_json(tmp_path, capsys):
    lightbert.save(text_model(REVIEWS), tmp_path / "model")
    assert main(["predict", str(tmp_path / "model"), "good film"]) == 0
    with running(lightbert.load(tmp_path / "model")) as client:
        [prediction] = client.post("/v1/predict", json={"texts": ["good film"]}).json()["predictions"]
    assert list(prediction) == ["text", "label", "probability", "probabilities"]
    assert_close(prediction, json.loads(capsys.readouterr().out))


def test_fields_of_a_record_are_kept_and_renamed_like_those_of_the_command():
    with running(text_model(REVIEWS)) as client:
        record = {"id": 7, "label": "mine", "text": "good film"}
        [prediction] = client.post("/v1/predict", json={"texts": [record]}).json()["predictions"]
    assert prediction["id"] == 7
    assert prediction["input_label"] == "mine"
    assert prediction["label"] in REVIEWS.labels


def test_records_have_the_columns_of_fine_tuning_like_those_of_the_command():
    model = text_model(REVIEWS)
    model.task = {**model.task, "data": {"text": "body"}}
    records = [{"body": "good film"}, {"text": "good film"}]
    with running(model) as client:
        answer = client.post("/v1/predict", json={"texts": records}).json()
    assert_close(answer["predictions"], [record | model.predict("good film") for record in records])


def test_vectors_are_those_of_encode():
    for projection in [False, True]:
        model, texts = text_model(REVIEWS), ["good film", ["a bad film", "the film was good"], {"text": "film"}]
        if projection:
            add_head(model, "vector", {"size": 5}, seed=0)
            model.pooling = Pooling(normalize=True, projection=True, default_prompt="a", prompts={"a": "bad "})
        with running(model) as client:
            found = client.post("/v1/embed", json={"texts": texts}).json()
        assert found.keys() == {"vectors"}
        expected = model.encode(["good film", ("a bad film", "the film was good"), "film"])
        np.testing.assert_allclose(found["vectors"], expected, atol=1e-6)


def test_suspicion_is_that_of_the_detector_word_by_word():
    model, text = text_model(None, "rtd"), "good films was bad."
    with running(model) as client:
        [answer] = client.post("/v1/suspicion", json={"texts": [text]}).json()["suspicions"]
    assert answer["text"] == text
    assert [each["text"] for each in answer["words"]] == ["good", "films", "was", "bad", "."]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in answer["words"])
    detector = Detector(model)
    tokens = model.require_tokenizer().encode(text, add_special_tokens=False).ids
    [expected] = detector.score([detector.words(tokens)])
    assert_close([each["suspicion"] for each in answer["words"]], [word.suspicion for word in expected])


def test_fill_gives_the_most_probable_tokens_of_each_mask():
    model, text = text_model(None, "mlm"), "good [MASK] was a[MASK]."
    with running(model) as client:
        [answer] = client.post("/v1/fill", json={"texts": [text], "top": 3}).json()["fills"]
        assert len(client.post("/v1/fill", json={"texts": [text]}).json()["fills"][0]["masks"][0]["candidates"]) == 5
    assert [text[each["start"] : each["end"]] for each in answer["masks"]] == ["[MASK]", "[MASK]"]
    tokenizer = model.require_tokenizer()
    row = [tokenizer.token_to_id(each) for each in ["[CLS]", "good", "[MASK]", "was", "a", "[MASK]", ".", "[SEP]"]]
    with torch.inference_mode():
        logits = model.heads["mlm"](model(torch.tensor([row])), model.table)[0]
    for place, mask in zip((2, 5), answer["masks"], strict=True):
        best = logits[place].softmax(-1).topk(3)
        assert [each["token"] for each in mask["candidates"]] == [tokenizer.id_to_token(at) for at in best.indices]
        assert_close([each["probability"] for each in mask["candidates"]], best.values.tolist())


def test_fill_requires_a_mask_that_the_model_reads():
    for text in ["good film", "good film " * 20 + "[MASK]"]:
        with running(text_model(None, "mlm")) as client:
            answer = client.post("/v1/fill", json={"texts": [text]})
        assert answer.status_code == 400
        assert "texts[0] must" in answer.json()["error"]
        assert "[MASK]" in answer.json()["error"]


@needs_onnx
@pytest.mark.parametrize(
    ("model", "head", "path"),
    [
        (REVIEWS, "", "predict"),
        (None, "rtd", "suspicion"),
        (None, "mlm", "fill"),
        (REVIEWS, "states", "embed"),
    ],
)
def test_exported_models_answer_like_the_models_that_they_come_from(model, head, path, tmp_path):
    original = text_model(model) if model else text_model(None, head)
    export(original, tmp_path / "out", head=head)
    exported = lightbert.load(tmp_path / "out")
    assert list(endpoints_of(exported)) == [path]
    texts = ["good film [MASK].", "a [MASK]"]
    with running(original) as torch_client, running(exported) as onnx_client:
        expected, found = (
            client.post(f"/v1/{path}", json={"texts": texts}).json() for client in (torch_client, onnx_client)
        )
        refused = onnx_client.post("/v1/embed" if path == "predict" else "/v1/predict", json={"texts": texts})
    assert list(found) == list(expected)
    assert_close(found, expected)
    assert refused.status_code == 404


def test_an_endpoint_that_the_model_lacks_names_what_it_can_do():
    with running(text_model(None, "rtd")) as client:
        answer = client.post("/v1/predict", json={"texts": ["good"]})
    assert answer.status_code == 404
    sentence = answer.json()["error"]
    assert "no head for /v1/predict" in sentence
    assert "/v1/suspicion" in sentence
    assert "/v1/embed" in sentence


def test_a_model_for_pairs_asks_for_the_second_text():
    model = text_model(REVIEWS)
    model.task = {**model.task, "pairs": True}
    with running(model) as client:
        answer = client.post("/v1/predict", json={"texts": [["a", "b"], "good film"]})
        assert client.post("/v1/predict", json={"texts": [["a", "b"]]}).status_code == 200
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("texts[1] is invalid: the model requires a second text")


def test_a_pair_is_an_error_for_a_tagger_and_the_second_text_of_a_record_is_ignored_like_in_python():
    model, record = text_model(Tokens(("O", "B-X", "I-X"))), {"text": "good film", "text_b": "bad"}
    with running(model) as client:
        refused = client.post("/v1/predict", json={"texts": ["good film", ["good film", "bad"]]})
        answer = client.post("/v1/predict", json={"texts": [record]})
    assert refused.status_code == 400
    sentence = "tagging requires a single text, got a pair; remove 'bad'"
    assert refused.json()["error"].startswith(f"texts[1] is invalid: {sentence}; ")
    with pytest.raises(InputError, match=sentence):
        model.predict([("good film", "bad")])
    assert_close(answer.json()["predictions"], [record | model.predict(record)])


def test_truncated_texts_are_counted():
    with running(text_model(REVIEWS)) as client:
        answer = client.post("/v1/predict", json={"texts": ["good film", "good " * 40]}).json()
    assert answer["truncated"] == 1
    assert len(answer["predictions"]) == 2


def test_health_metrics_model_and_openapi_describe_the_server():
    with running(text_model(REVIEWS)) as client:
        assert client.get("/healthz").json() == {
            "status": "ok",
            "model": "tiny",
            "endpoints": ["predict", "embed", "attention"],
        }
        description = client.get("/v1/model").json()
        for name, each in description["endpoints"].items():
            assert client.post(each["path"], json={"texts": [each["example"]]}).status_code == 200, name
        client.post("/v1/predict", content=b"{")
        schema = client.get("/openapi.json").json()
        metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = metrics.text.splitlines()
    assert 'lightbert_requests_total{endpoint="predict",status="200"} 1.0' in lines
    assert 'lightbert_texts_total{endpoint="predict"} 1.0' in lines
    assert "lightbert_request_seconds_count 4.0" in lines
    assert "lightbert_waiting_requests 0.0" in lines
    assert {"/v1/predict", "/v1/embed", "/v1/fill", "/v1/suspicion", "/healthz", "/metrics"} <= schema["paths"].keys()
    body = schema["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    assert body["example"]["texts"] == [description["endpoints"]["predict"]["example"]]


def test_wrong_paths_and_methods_get_a_sentence():
    for method, path, status in [
        ("GET", "/v2/x", 404),
        ("GET", "/v1/predict", 405),
        ("DELETE", "/", 405),
        ("POST", "/healthz", 405),
    ]:
        with running(text_model(REVIEWS)) as client:
            answer = client.request(method, path)
        assert answer.status_code == status
        assert path in answer.json()["error"]


@needs_onnx
def test_a_model_that_can_do_nothing_is_an_error(tmp_path):
    model = text_model(None, "nsp")
    export(model, tmp_path / "out", head="nsp")
    with pytest.raises(InputError, match=r"must include one of .* got nsp"):
        endpoints_of(lightbert.load(tmp_path / "out"))


@needs_onnx
def test_exported_models_are_served_without_torch(tmp_path):
    export(text_model(REVIEWS), tmp_path / "out")
    code = (
        "import sys; import lightbert.serve.server; from lightbert.serve.models import endpoints_of; "
        "from lightbert.tasks.predict.exported import load; endpoints_of(load(sys.argv[1])); "
        "sys.exit(','.join({'torch', 'transformers'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
