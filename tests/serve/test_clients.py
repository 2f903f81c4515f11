"""OpenAI's and Hugging Face's clients, and text-embeddings-inference's addresses, on this server."""

import base64

import numpy as np
import pytest
from servers import running, text_model

import lightbert
from extras import needs_onnx
from lightbert.deploy.export import export
from lightbert.serve.batching import Limits
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.tokens import Tokens

REVIEWS = Classify(("bad", "good"))
TEXTS = ["good film", "the film was bad"]


@pytest.fixture(scope="module")
def model():
    return text_model(REVIEWS)


@pytest.fixture(scope="module")
def client(model):
    with running(model, Limits(texts=8)) as opened:
        yield opened


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def unit_vectors(model, texts=TEXTS, size=None):
    vectors = model.encode(texts)[:, :size]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_openais_client_gets_vectors_as_floats_and_in_base64_of_texts_and_tokens(model, client, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    openai = pytest.importorskip("openai", reason="openai not installed")
    tokens = [model.tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    ask = openai.OpenAI(api_key="any", base_url=f"{client.base_url}/v1", max_retries=0)
    assert [each.id for each in ask.models.list()] == ["tiny"]
    assert ask.models.retrieve("tiny").owned_by == "lightbert"
    for texts, size, encoding in [
        (TEXTS, None, "float"),
        (TEXTS, 3, "base64"),
        (tokens, None, openai.omit),
        (TEXTS[0], None, "float"),
        (tokens[0], 3, "float"),
    ]:
        dimensions = openai.omit if size is None else size
        answer = ask.embeddings.create(model="tiny", input=texts, dimensions=dimensions, encoding_format=encoding)
        expected = unit_vectors(model, TEXTS[: len(answer.data)], size)
        vectors = [each.embedding for each in answer.data]
        if encoding == "base64":
            vectors = [np.frombuffer(base64.b64decode(vector), dtype="<f4") for vector in vectors]
        np.testing.assert_allclose(np.array(vectors), expected, atol=1e-6)
        assert [each.index for each in answer.data] == list(range(len(expected)))
        assert answer.usage.prompt_tokens == sum(len(ids) + 2 for ids in tokens[: len(expected)])
    with pytest.raises(openai.NotFoundError, match="the model must be 'tiny'"):
        ask.embeddings.create(model="other", input=TEXTS)
    with pytest.raises(openai.BadRequestError, match="vectors have"):
        ask.embeddings.create(model="tiny", input=TEXTS, dimensions=99999)
    with pytest.raises(openai.BadRequestError, match=r"token ids must be in \[0, "):
        ask.embeddings.create(model="tiny", input=[[99999]])
    with pytest.raises(openai.APIStatusError, match="at most 8 texts") as error:
        ask.embeddings.create(model="tiny", input=TEXTS * 5)
    assert error.value.status_code == 413


def test_hugging_faces_client_gets_vectors_similarities_and_the_label(model, client, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub not installed")
    vectors = unit_vectors(model)
    embedder = hub.InferenceClient(model=f"{client.base_url}/embed")
    np.testing.assert_allclose(embedder.feature_extraction(TEXTS), vectors, atol=1e-6)
    raw = embedder.feature_extraction(TEXTS, normalize=False)
    np.testing.assert_allclose(raw, model.encode(TEXTS), atol=1e-6)
    similar = hub.InferenceClient(model=f"{client.base_url}/similarity").sentence_similarity(
        TEXTS[0], other_sentences=TEXTS
    )
    np.testing.assert_allclose(similar, [1.0, vectors[0] @ vectors[1]], atol=1e-6)
    best = hub.InferenceClient(model=f"{client.base_url}/predict").text_classification(TEXTS[0])
    assert best.label == model.predict(TEXTS[0])["label"]


def test_text_embeddings_inferences_addresses_have_its_fields(model, client):
    vectors = unit_vectors(model)
    np.testing.assert_allclose(
        post(client, "/embed", inputs=TEXTS, dimensions=3), unit_vectors(model, TEXTS, 3), atol=1e-6
    )
    np.testing.assert_allclose(post(client, "/embed", inputs=TEXTS[0]), vectors[:1], atol=1e-6)
    [states] = post(client, "/embed_all", inputs=TEXTS[0])
    np.testing.assert_allclose(np.mean(states, axis=0), model.encode(TEXTS[0]), atol=1e-5)
    expected = [model.predict(text)["probabilities"] for text in TEXTS]
    single, batch = (
        post(client, "/predict", inputs=TEXTS[0]),
        post(client, "/predict", inputs=[[text] for text in TEXTS]),
    )
    assert post(client, "/", inputs=TEXTS[0]) == single
    assert [row["label"] for row in single] == sorted(expected[0], key=expected[0].get, reverse=True)
    for row, probabilities in zip(batch, expected, strict=True):
        assert {item["label"]: item["score"] for item in row} == pytest.approx(probabilities, abs=1e-6)
    assert len(post(client, "/predict", inputs=TEXTS)) == 2, "two texts are a pair"
    [tokens] = post(client, "/tokenize", inputs=TEXTS[0])
    assert [token["text"] for token in tokens] == ["[CLS]", "good", "film", "[SEP]"]
    assert [token["special"] for token in tokens] == [True, False, False, True]
    assert [(token["start"], token["stop"]) for token in tokens] == [(None, None), (0, 4), (5, 9), (None, None)]
    assert post(client, "/decode", ids=[token["id"] for token in tokens]) == ["good film"]
    info = client.get("/info").json()
    assert info["model_type"]["classifier"]["label2id"] == {"bad": 0, "good": 1}
    assert (info["model_id"], info["max_input_length"], info["max_client_batch_size"]) == ("tiny", 16, 8)
    assert client.get("/health").content == b""
    assert "te_request_success " in client.get("/metrics").text


def test_what_is_not_supported_is_refused_with_the_fields_of_text_embeddings_inference(client):
    for path, body, status, sentence in [
        ("/embed", {"inputs": "good " * 40, "truncate": False}, 413, "1 texts are longer than the model reads"),
        ("/embed", {"inputs": "good", "truncation_direction": "Left"}, 400, "'truncation_direction' must be"),
        ("/embed", {"inputs": "good", "prompt_name": "query"}, 400, "the keys of the request must be"),
        ("/embed", {"inputs": 7}, 400, "'inputs' must be a text, the ids of its tokens, or a list of these, got 7"),
        ("/predict", {"inputs": [["a", "b", "c"]]}, 400, "'inputs' must be a text, a pair of texts"),
        ("/predict", {"inputs": "good", "raw_scores": True}, 400, "'raw_scores' must be False, got True"),
        ("/decode", {"ids": ["a"]}, 400, "'ids'[0] must be a valid list, got 'a'"),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, 400, "'inputs'['sentences'] must be given"),
    ]:
        answer = client.post(path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
        assert sentence in answer.json()["error"]
        assert answer.json()["error_type"] == "Validation"


@needs_onnx
def test_models_of_other_kinds_say_what_they_can_do(tmp_path):
    with running(text_model(Regress(0.0, 5.0))) as client:
        [score] = post(client, "/predict", inputs="good film")
        assert score["label"] == "score"
        assert client.get("/info").json()["model_type"] == {"embedding": {"pooling": "mean"}}
    with running(text_model(Tokens(("O", "B-X", "I-X")))) as client:
        assert client.post("/predict", json={"inputs": "good"}).status_code == 404
    export(text_model(REVIEWS), tmp_path / "out")
    with running(lightbert.load(tmp_path / "out")) as client:
        assert client.post("/embed", json={"inputs": "good"}).status_code == 404
        assert len(post(client, "/", inputs="good")) == 2


def test_with_a_key_every_request_but_those_for_health_must_have_it(model):
    with running(model, key="secret") as client:
        for path in ("/v1/predict", "/v1/embeddings", "/embed", "/v1/model", "/metrics"):
            refused = client.request("GET" if path in ("/v1/model", "/metrics") else "POST", path, json={})
            assert refused.status_code == 401
            assert "'Authorization: Bearer KEY'" in refused.text
        wrong = client.get("/v1/model", headers={"Authorization": "Bearer secre"})
        assert wrong.status_code == 401
        assert client.get("/v1/model", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert client.get("/healthz").status_code == client.get("/health").status_code == 200
