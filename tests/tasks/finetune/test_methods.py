"""Methods that learn labels: linear models of words and vectors, their validation, and the choice between them."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_tasks import finetune, only, write_model
from vocabularies import small_tokenizer

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.config import from_mapping
from lightbert.errors import InputError
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.contrast import contrastive_loss
from lightbert.tasks.finetune.linear import fit, folds, held_out_losses
from lightbert.tasks.finetune.methods import choose, soften
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.results import Result
from lightbert.tasks.finetune.word_features import WordFeatures
from lightbert.tasks.kinds.classify import Classify

WORDS = ("film", "ship", "road", "song", "train", "match", "letter")


CHOOSE = ("epochs=auto", "method=auto")


def write_texts(path: Path, rows: int = 120, kind: str = "classify") -> Path:
    """Texts whose label is said by a word, at any place."""
    random, lines = np.random.default_rng(0), []
    for _ in range(rows):
        good = bool(random.integers(2))
        words = [*random.choice(WORDS, 4), "good" if good else "bad"]
        random.shuffle(words)
        label = {
            "classify": "yes" if good else "no",
            "regress": 1.5 if good else -0.25,
            "labels": ["a", "b"][: 1 + good],
        }
        lines.append(json.dumps({"text": " ".join(words), "label": label[kind]}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("start") / "model")


def test_the_network_computes_the_features_that_the_linear_model_was_fitted_on():
    tokenizer = small_tokenizer()
    rows = [np.array(tokenizer.encode(text).ids) for text in ("a good film", "a bad film , a bad one", "good")]
    features = WordFeatures(tokenizer, tokenizer.get_vocab_size(), rows)
    gram = features.gram()
    layer = features.layer(torch.eye(3))
    with torch.no_grad():
        computed = torch.cat([layer(torch.from_numpy(row)[None]) for row in rows])
    torch.testing.assert_close(computed, gram, rtol=1e-4, atol=1e-5)


TARGETS = [np.array([0, 1, 2] * 20), np.array([0.5, -1.0, 2.0] * 20, np.float32)]


def gram_of_targets() -> torch.Tensor:
    x = np.eye(3)[np.arange(60) % 3] + 0.1 * np.random.default_rng(0).normal(size=(60, 3))
    return torch.from_numpy((x @ x.T).astype(np.float32))


@pytest.mark.parametrize("targets", TARGETS)
def test_linear_models_fit_classes_and_numbers(targets):
    gram = gram_of_targets()
    scores = fit(gram, targets, 3 if targets.dtype.kind == "i" else 1, 10.0).scores(gram)
    if targets.dtype.kind == "i":
        assert (scores.argmax(1).numpy() == targets).all()
    else:
        assert np.abs(scores[:, 0].numpy() - targets).max() < 0.5


def test_held_out_losses_are_those_of_models_that_are_fitted_without_the_part():
    gram, numbers = gram_of_targets().double(), TARGETS[1].astype(np.float64)
    parts = [np.arange(0, 60, 3), np.arange(5)]
    mean, expected = numbers.mean(), []
    for part in parts:
        rest = np.setdiff1d(np.arange(60), part)
        inner = gram.numpy()[np.ix_(rest, rest)] + 1 + np.eye(len(rest)) / 20
        fitted = mean + (gram.numpy()[np.ix_(part, rest)] + 1) @ np.linalg.solve(inner, numbers[rest] - mean)
        expected.append((fitted - numbers[part]) ** 2)
    np.testing.assert_allclose(held_out_losses(gram, numbers, 1, parts), np.concatenate(expected), rtol=1e-6)


def test_other_features_than_the_first_are_chosen_if_they_are_clearly_better():
    labels = np.arange(60) % 3
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=(60, 8))).float()
    good, bad = gram_of_targets(), noise @ noise.T / 8
    texts = SimpleNamespace(targets=labels, outputs=3, parts=[np.arange(60)[k::5] for k in range(5)], examples=labels)
    assert choose(texts, {"bad": bad, "good": good}) == "good"
    assert choose(texts, {"good": good, "bad": bad}) == "good"
    assert choose(texts, {"good": good, "similar": good + bad / 100}) == "good"


def test_held_out_parts_have_all_labels_and_copies_of_a_text_stay_together():
    labels, groups = [0] * 40 + [1] * 10, [*range(45), 0, 1, 2, 3, 4]
    parts = folds(groups, labels, 5, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))
    part_of = {row: index for index, part in enumerate(parts) for row in part.tolist()}
    assert all(part_of[45 + row] == part_of[row] for row in range(5))
    assert all(1 <= sum(labels[row] for row in part) <= 3 for part in parts)


@pytest.mark.parametrize("kind", ["classify", "labels", "regress"])
def test_words_are_found_best_and_their_folder_predicts_without_scikit_learn(
    kind, model, tmp_path: Path, capsys, monkeypatch
):
    data = write_texts(tmp_path / "data.jsonl", kind=kind)
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    start = (f"model={model}", f"data.train={data}", f"data.kind={kind}", f"out={tmp_path / 'out'}")
    result = only(finetune("classify", *start, *CHOOSE))
    assert set(result.methods) == {"majority", "words", "vectors", "both"}
    assert result.metrics[result.metric] == result.methods[result.method]["score"] > 0.9
    assert "fine-tuning was not tried: it requires 20 held-out texts, got 12" in capsys.readouterr().err
    trained = lightbert.load(tmp_path / "out" / "final")
    predictions = trained.predict(["a good film", "a bad film"])
    if kind == "regress":
        assert predictions[0]["score"] > 1
        assert predictions[1]["score"] < 0.2
    elif kind == "labels":
        assert [prediction["labels"] for prediction in predictions] == [["a", "b"], ["a"]]
    else:
        assert [prediction["label"] for prediction in predictions] == ["yes", "no"]


def test_one_method_can_be_fixed_and_words_need_no_encoder(model, tmp_path: Path, monkeypatch):
    data = write_texts(tmp_path / "data.jsonl")
    start = (f"model={model}", f"data.train={data}")
    result = only(finetune("classify", *start, f"out={tmp_path / 'words'}", "method=words"))
    assert (result.method, set(result.methods)) == ("words", {"majority", "words"})
    trained = lightbert.load(tmp_path / "words" / "final")
    assert len(trained.blocks) == 1
    monkeypatch.setattr(type(trained), "forward", None)
    assert trained.predict("a good film")["label"] == "yes"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"text": "a", "b": "c", "label": "x"}\n{"text": "b", "b": "c", "label": "y"}\n' * 10)
    with pytest.raises(InputError, match="method=words requires single texts with labels or numbers, got pairs"):
        finetune(
            "classify",
            f"model={model}",
            f"data.train={pairs}",
            "data.text_b=b",
            f"out={tmp_path / 'p'}",
            "method=words",
        )


def test_fine_tuning_is_compared_on_the_held_out_part(model, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("lightbert.tasks.finetune.defaults._MAX_EPOCHS", 3)
    data = write_texts(tmp_path / "data.jsonl", rows=200)
    result = only(finetune("classify", f"model={model}", f"data.train={data}", f"out={tmp_path / 'out'}", *CHOOSE))
    assert set(result.methods) == {"majority", "words", "vectors", "both", "finetune", "finetune + words"}
    assert result.methods[result.method]["score"] == max(row["score"] for row in result.methods.values())
    assert lightbert.load(tmp_path / "out" / "final").predict("a good film")["label"] == "yes"


def test_labels_that_the_texts_dont_say_are_reported(model, tmp_path: Path, capsys):
    random = np.random.default_rng(1)
    rows = [f"{' '.join(random.choice(WORDS, 5))},{'no' if number % 4 else 'yes'}" for number in range(100)]
    data = tmp_path / "data.csv"
    data.write_text("text,label\n" + "\n".join(rows) + "\n")
    assert main(["finetune", "classify", f"model={model}", f"data.train={data}", f"out={tmp_path / 'out'}"]) == 0
    assert "not better than the majority (accuracy 0.7500)" in " ".join(capsys.readouterr().out.split())


def test_training_keys_mean_fine_tuning_alone_and_out_is_named_after_the_file():
    keys = {"model": "m", "data": {"train": "x/my.csv"}, "method": "auto"}
    assert from_mapping(FinetuneRecipe, {**keys, "epochs": "auto"}).compares
    assert not from_mapping(FinetuneRecipe, {**keys, "epochs": 3.0}).compares
    assert not from_mapping(FinetuneRecipe, {**keys, "epochs": "auto", "steps": 5}).compares
    assert from_mapping(FinetuneRecipe, keys).out == "runs/my"
    assert from_mapping(
        Result, json.loads(json.dumps(vars(Result({}, "a", 0, -1, 1.0, methods={"x": {"score": 1.0}}))))
    )


@needs_onnx
@pytest.mark.parametrize("method", ["words", "both"])
def test_words_are_part_of_the_exported_graph(method, model, tmp_path: Path):
    data = write_texts(tmp_path / "data.jsonl")
    finetune("classify", f"model={model}", f"data.train={data}", f"out={tmp_path / 'out'}", f"method={method}")
    trained, texts = (
        lightbert.load(tmp_path / "out" / "final"),
        ["a good film", "bad", "the ship , the road , good good"],
    )
    expected = [prediction["probability"] for prediction in trained.predict(texts)]
    for target in ("onnx", "pt2"):
        folder = tmp_path / target
        assert main(["export", str(tmp_path / "out" / "final"), "--to", target, "--out", str(folder)]) == 0
        exported = [prediction["probability"] for prediction in lightbert.load(folder).predict(texts)]
        np.testing.assert_allclose(exported, expected, atol=1e-5)


def test_a_few_texts_also_tune_the_encoder(model, tmp_path: Path):
    data, out = write_texts(tmp_path / "data.jsonl", rows=30), tmp_path / "out"
    result = only(finetune("classify", f"model={model}", f"data.train={data}", f"out={out}", *CHOOSE))
    assert set(result.methods) == {"majority", "words", "vectors", "both", "contrast"}
    result = only(finetune("classify", f"model={model}", f"data.train={data}", f"out={out}-2", "method=contrast"))
    assert result.method == "contrast"
    before, after = lightbert.load(model), lightbert.load(tmp_path / "out-2" / "final")
    name = "blocks.0.feedforward.up.weight"
    assert not torch.equal(before.state_dict()[name], after.state_dict()[name])
    assert after.predict("a good film")["label"] == "yes"
    many = write_texts(tmp_path / "many.jsonl", rows=40)
    with pytest.raises(InputError, match=r"method=contrast requires at most 128 texts with one label.* got 40 texts"):
        finetune("classify", f"model={model}", f"data.train={many}", f"out={out}-3", "method=contrast")


def test_the_contrastive_loss_falls_when_texts_with_the_same_label_are_near_each_other():
    labels = torch.tensor([0, 0, 1, 1, 2])
    near = F.one_hot(labels).float() + 0.01 * torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    logits = F.normalize(near, dim=1) @ F.normalize(near, dim=1).T / 0.1
    expected = [
        torch.logsumexp(logits[row][torch.arange(5) != row], 0) - logits[row, other]
        for row, other in [(0, 1), (1, 0), (2, 3), (3, 2)]
    ]
    torch.testing.assert_close(contrastive_loss(near, labels), torch.stack(expected).mean())
    assert contrastive_loss(near, labels) < contrastive_loss(near[[0, 2, 1, 3, 4]], labels)


@pytest.mark.parametrize("method", ["words", "both"])
def test_an_overconfident_model_is_softened_and_predicts_the_same_labels(method, model, tmp_path: Path):
    data = write_texts(tmp_path / "data.jsonl")
    finetune("classify", f"model={model}", f"data.train={data}", f"out={tmp_path / 'out'}", f"method={method}")
    trained, kind = lightbert.load(tmp_path / "out" / "final"), Classify(("no", "yes"))
    texts = [json.loads(line)["text"] for line in data.read_text().splitlines()]
    before = trained.predict(texts)
    # Every fifth label is wrong.
    labels = [kind.labels[(row["label"] == "yes") != (number % 5 == 0)] for number, row in enumerate(before)]
    soften(trained, kind, [Example(text, label=label) for text, label in zip(texts, labels, strict=True)], before)
    after = trained.predict(texts)
    assert [row["label"] for row in after] == [row["label"] for row in before]
    assert np.mean([row["probability"] for row in before]) > 0.95
    assert np.mean([row["probability"] for row in after]) == pytest.approx(0.8, abs=0.02)
