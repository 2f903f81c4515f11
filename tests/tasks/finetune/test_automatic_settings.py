"""Settings chosen from the data, the fitted output layer, and the comparison with words."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_tasks import finetune, only, write_model, write_reviews

import lightbert
from extras import needs_metrics
from lightbert.config import assignments, from_mapping
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.defaults import Facts, length_for, settings_for
from lightbert.tasks.finetune.plan import plan
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.results import Result
from lightbert.tasks.finetune.starting_model import fit_linear
from lightbert.tasks.finetune.words import predict_by_words
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress

KEYS = {"model": "m", "out": "o", "data": {"train": "x.csv"}}


def facts(kind: str = "classify", pairs: bool = False, rows: int = 2000, tokens: float = 15.0) -> Facts:
    return Facts(kind, pairs, rows, tokens, depth=12, width=256)


def test_a_key_is_chosen_from_the_data_unless_it_is_given():
    recipe = from_mapping(FinetuneRecipe, {**KEYS, "lr": "auto", "head": {"pool": "auto", "dropout": 0.2}})
    assert recipe.auto == ("lr", "head.pool")
    chosen = recipe.with_values({"lr": 0.5, "head.pool": "max", "epochs": 7.0})
    assert (chosen.lr, chosen.head.pool, chosen.head.dropout, chosen.epochs) == (0.5, "max", 0.2, 3.0)
    assert chosen.auto == ()
    given = plan(read("classify"), assignments(["model=m", "out=o", "data.train=x.csv", "lr=1e-3", "change.depth=12"]))
    assert not {"lr", "change.depth"} & {*given.runs[0].recipe.auto}
    assert "epochs" in given.runs[0].recipe.auto


def test_only_keys_with_a_rule_can_be_chosen():
    with pytest.raises(InputError, match="seed must be an integer, got 'auto'"):
        from_mapping(FinetuneRecipe, {**KEYS, "seed": "auto"})
    with pytest.raises(InputError, match="unknown key to choose 'seed'"):
        from_mapping(FinetuneRecipe, {**KEYS, "auto": ["seed"]})


def test_fewer_texts_are_repeated_more_often_and_longer_ones_less():
    epochs = [settings_for(facts(rows=rows))["epochs"] for rows in (50, 300, 2000, 100_000)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[2] > epochs[3] >= 1
    assert settings_for(facts(tokens=400))["epochs"] < settings_for(facts())["epochs"]


def test_single_texts_need_few_layers_pairs_and_many_texts_all():
    few = [facts(), facts("labels"), facts("tokens"), facts(rows=300)]
    assert [settings_for(each)["change.depth"] for each in few] == [4] * 4
    whole = [facts(pairs=True), facts(rows=50_000), facts("tokens", rows=14_000)]
    assert [settings_for(each)["change.depth"] for each in whole] == [12] * 3
    # Twelve layers don't learn tags at the rate of four.
    assert settings_for(whole[0])["lr"] < settings_for(few[0])["lr"]


def test_tags_have_no_pool():
    settings = settings_for(facts("tokens"))
    assert (settings["head.pool"], settings["head.init"]) == ("cls", "probe")


def test_an_output_layer_for_tags_is_fitted_on_the_states_of_words(tmp_path: Path):
    model, tags = write_model(tmp_path / "model"), tmp_path / "tags.conll"
    words = {"good": "B-GOOD", "bad": "B-BAD", "film": "O", "the": "O", "was": "O"}
    random = np.random.default_rng(0)
    sentences = [[f"{word} {words[word]}" for word in random.choice([*words], 5)] for _ in range(30)]
    tags.write_text("\n\n".join("\n".join(lines) for lines in sentences) + "\n")
    keys = (f"model={model}", f"data.train={tags}", f"data.dev={tags}", "data.kind=tokens", "steps=1", "lr=1e-9")
    fitted, random_layer = (
        only(finetune("tokens", *keys, f"out={tmp_path / init}", f"head.init={init}")).metrics["f1"]
        for init in ("probe", "random")
    )
    assert fitted > 0.9 > random_layer


def test_imported_and_large_models_keep_their_layers_and_a_low_rate():
    imported = settings_for(replace(facts(), imported=True))
    assert (imported["head.pool"], imported["head.init"]) == ("cls", "random")
    for settings in (imported, settings_for(replace(facts(), width=768))):
        assert (settings["change.depth"], settings["lr"], settings["layer_decay"]) == (12, 1e-4, 0.8)
    assert settings_for(replace(facts(), hidden=True))["head.init"] == "random"


def test_the_length_truncates_few_texts():
    assert length_for([20] * 99 + [500], 512) == 128
    assert length_for([20] * 50 + [200] * 50, 512) == 256
    assert length_for([2000] * 9, 512) == 512
    assert length_for([2000] * 9, 0) == 512
    assert length_for([20], 16) == 16


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_a_linear_model_fits_separable_vectors_of_any_scale(kind):
    vectors = (np.random.default_rng(0).normal(size=(200, 5)) * [0.5, 1, 1, 1, 2] + 7) * 1e-3
    score = vectors[:, 0] * 2 + vectors[:, 1]
    targets = {
        "classes": (score > score.mean()).astype(np.int64),
        "labels": np.stack([score > score.mean(), vectors[:, 4] > 7e-3], axis=1).astype(np.float32),
        "numbers": score.astype(np.float32),
    }[kind]
    weight, bias = fit_linear(vectors, targets, outputs=1 if kind == "numbers" else 2)
    outputs = (torch.from_numpy(vectors).float() @ weight.T + bias).numpy()
    match kind:
        case "classes":
            assert (outputs.argmax(1) == targets).mean() > 0.95
        case "labels":
            assert ((outputs > 0) == targets).mean() > 0.95
        case _:
            assert np.corrcoef(outputs[:, 0], targets)[0, 1] > 0.99


def test_the_threshold_of_several_labels_is_the_one_with_the_best_f1():
    kind = Labels(("a", "b"))
    examples = [Example("x", label=("a",)), Example("y", label=()), Example("z", label=("b",))]
    rows = [{"a": 0.3, "b": 0.1}, {"a": 0.15, "b": 0.1}, {"a": 0.15, "b": 0.25}]
    predictions = kind.decide([{"probabilities": row} for row in rows])
    assert kind.metrics(examples, predictions)["micro_f1"] == 0
    tuned = kind.tune(examples, predictions)
    assert 0.15 <= tuned.threshold < 0.25
    assert tuned.metrics(examples, tuned.decide(predictions))["micro_f1"] == 1


def test_vectors_that_hardly_differ_get_small_weights():
    vectors = np.random.default_rng(0).normal(size=(50, 4)) * 1e-4 + 1
    weight, _ = fit_linear(vectors, (vectors[:, 0] > 1).astype(np.int64), outputs=2)
    assert weight.abs().max() < 1


@needs_metrics
def test_words_predict_classes_labels_and_numbers():
    texts = [f"{word} film {number}" for number in range(30) for word in ("good", "bad")]
    pairs = [Example("the film", text, label="bad" if "bad" in text else "good") for text in texts]
    predicted = predict_by_words(Classify(("bad", "good")), pairs, pairs[:2])
    assert [each["label"] for each in predicted] == ["good", "bad"]
    several = [Example(text, label=("bad",) if "bad" in text else ("good", "film")) for text in texts]
    predicted = predict_by_words(Labels(("bad", "film", "good", "unused")), several, several[:2])
    assert [each["labels"] for each in predicted] == [["film", "good"], ["bad"]]
    numbers = [Example(text, label=float("good" in text)) for text in texts]
    high, low = predict_by_words(Regress(0.0, 1.0), numbers, numbers[:2])
    assert high["score"] > 0.8
    assert low["score"] < 0.2
    one = [Example("good film", label="good")] * 3
    assert predict_by_words(Classify(("bad", "good")), one, one[:1]) == [{"label": "good"}]


def test_the_last_line_says_what_is_best():
    def line(score: float, words: dict[str, float], baseline: float = 0.5) -> str:
        return Result(
            {"accuracy": score}, "accuracy", 1, -1, 1.0, baseline={"accuracy": baseline}, words=words
        ).comparison()

    assert line(0.9, {"accuracy": 0.8}) == "accuracy on dev: words alone 0.8000, this model 0.9000"
    assert line(0.7, {"accuracy": 0.8}).startswith("words are better: accuracy on dev is 0.8000 for a linear model")
    assert line(0.5, {"accuracy": 0.4}).startswith("nothing was learned: accuracy on dev is 0.5000, and 0.5000 for")
    assert line(0.9, {}) == ""


@needs_metrics
def test_a_run_uses_and_saves_the_chosen_settings(tmp_path: Path, capsys):
    model, train = write_model(tmp_path / "model", depth=2), write_reviews(tmp_path / "train.csv", rows=60)
    keys = (f"model={model}", f"data.train={train}", "data.text=body", "data.label=topic", f"out={tmp_path / 'run'}")
    result = only(finetune("classify", *keys, "epochs=1", "length=auto", "change.depth=1"))
    assert "chosen from the data: batch" not in (stderr := capsys.readouterr().err)
    assert "chosen from the data: layer_decay=1.0 head.pool=mean-max head.init=probe length=16" in stderr
    assert result.words["accuracy"] > 0.5
    trained = lightbert.load(tmp_path / "run" / "final")
    assert (len(trained.blocks), trained.head_settings["classify"]["pool"], trained.task["length"]) == (
        1,
        "mean-max",
        16,
    )
    assert "length" in json.loads((tmp_path / "run" / "recipe.json").read_text())["auto"]
    card = (tmp_path / "run" / "final" / "README.md").read_text()
    assert 'pool = "mean-max"' in card
