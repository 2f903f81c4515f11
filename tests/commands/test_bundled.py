"""The bundled models: every command finds them by name, with a tiny stand-in for the weights, and the real weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_tasks import write_model, write_reviews

import lightbert
from extras import needs_metrics, needs_onnx, needs_plots
from lightbert import bundled, cli
from lightbert.analysis.suspicion import Detector
from lightbert.models import PRESETS, add_head, build, folder
from lightbert.models.presets import generator
from lightbert.serve.models import endpoints_of, load_generator
from lightbert.tasks.predict.text_model import load_text_model

NAME = "convbert-small-en"
STUDENT = "convbert-thin-en"
_TEXT = "\n".join(["the film was good .", "the film was bad .", "a film", "the good film was a film ."] * 20)


def _write_shipped(where: Path) -> Path:
    """Write a tiny model with its generator inside, both in bf16 and with different dropout rates, as they ship."""
    model = write_model(where / NAME)
    discriminator = folder.load(model)
    small = build(generator(discriminator.config, 0.25), seed=1)
    add_head(small, "mlm", seed=1)
    folder.save(small, model / "generator", tokenizer=discriminator.tokenizer)
    config = model / "generator" / "config.json"
    config.write_text(config.read_text().replace('dropout": 0.1', 'dropout": 0.0'))
    for weights in where.rglob("model.safetensors"):
        save_file({name: each.bfloat16() for name, each in load_file(weights).items()}, weights)
    return where


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_shipped(tmp_path_factory.mktemp("bundled"))


@pytest.fixture
def here(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and the stand-in instead of the bundled models."""
    monkeypatch.setattr(bundled, "FOLDER", shipped)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> None:
    assert cli.main([*words]) == 0, words


def test_a_bundled_model_is_loaded_in_float32(here):
    model = lightbert.load(NAME)
    assert model.table.dtype == torch.float32
    assert "mlm" in lightbert.load(f"{NAME}/generator").heads


def test_the_server_proposes_words_by_the_generator_of_the_bundled_model(here):
    model = lightbert.load(NAME)
    add_head(model, "rtd", seed=0)
    generator = load_generator(NAME, model)
    assert generator is not None
    assert generator.config.width < model.config.width
    assert [*endpoints_of(model, generator=generator, device="cpu")][:2] == ["suspicion", "fill"]


def test_info_lists_the_bundled_models_with_their_size(here, shipped, capsys):
    run("info", "--json")
    listed = json.loads(capsys.readouterr().out)["bundled"]
    assert [each["name"] for each in listed] == [NAME, f"{NAME}/generator"]
    files = [path for path in (shipped / NAME).iterdir() if path.is_file()]
    assert listed[0]["bytes"] == sum(path.stat().st_size for path in files)
    run("info")
    assert "convbert-small-en/generator" in capsys.readouterr().out
    run("info", NAME)
    assert "rtd head" in capsys.readouterr().out


def test_pretraining_continues_with_the_tokenizer_and_the_generator_of_the_bundled_model(here, capsys):
    Path("text.txt").write_text(_TEXT)
    run("prepare", "text.txt", "--out", "data", "--tokenizer", NAME, "--documents", "line", "--held-out", "0.1")
    assert json.loads(Path("data/manifest.json").read_text())["settings"]["tokenizer"] == NAME
    small = ("steps=2", "batch=4", "length=12", "evaluate_batches=1", "workers=0", "device=cpu", "dropout=0.0")
    run("pretrain", "tiny-rtd", f"model={NAME}", "generator=0.25", "data=data", "out=run", *small)
    assert f"generator: '{NAME}/generator'" in capsys.readouterr().err
    before, after = lightbert.load(f"{NAME}/generator"), lightbert.load("run/generator")
    name = "blocks.0.feedforward.up.weight"
    # Two steps at a small rate change little; random weights would differ by much more.
    assert torch.allclose(before.get_parameter(name), after.get_parameter(name), atol=5e-3)
    assert lightbert.load("run/final").config.dropout == 0.0


@needs_metrics
def test_finetuning_evaluation_and_prediction_start_from_the_bundled_model(here, capsys):
    write_reviews(here / "reviews.csv", rows=24)
    data = ("data.train=reviews.csv", "data.dev=reviews.csv", "data.text=body", "data.label=topic")
    run("finetune", "classify", f"model={NAME}", *data, "out=run", "epochs=1", "length=12", "workers=0", "device=cpu")
    capsys.readouterr()
    run("predict", "run/final", "the film was good")
    assert json.loads(capsys.readouterr().out)["label"] in ("bad", "good")
    run("evaluate", "run/final", "--data", "reviews.csv")


@needs_metrics
def test_a_preset_is_finetuned_with_the_tokenizer_of_the_bundled_model(here):
    write_reviews(here / "reviews.csv", rows=24)
    data = ("data.train=reviews.csv", "data.dev=reviews.csv", "data.text=body", "data.label=topic", f"tokenizer={NAME}")
    small = ("out=run", "steps=1", "length=12", "workers=0", "device=cpu", "change.positions=16")
    run("finetune", "classify", "model=convbert-tiny", *data, *small)
    assert lightbert.load("run/final").config.vocab == lightbert.load(NAME).config.vocab


@pytest.mark.parametrize("words", [("predict", NAME, "a film"), ("evaluate", NAME, "--data", "reviews.csv")])
def test_commands_that_need_a_task_ask_for_finetuning(here, capsys, words):
    write_reviews(here / "reviews.csv", rows=4)
    assert cli.main([*words]) == 1
    assert "fine-tune it first with `lightbert finetune`" in capsys.readouterr().err


def test_embed_writes_vectors_of_the_bundled_model(here):
    Path("texts.txt").write_text("the film was good\na film\n")
    run("embed", NAME, "texts.txt", "--out", "vectors.npy")
    vectors = np.load("vectors.npy")
    assert np.allclose(vectors, lightbert.load(NAME).encode(["the film was good", "a film"]), atol=1e-5)


@needs_onnx
def test_an_exported_bundled_model_has_the_same_vectors(here):
    run("export", NAME, "--out", "exported")
    text = "the film was good"
    assert np.allclose(lightbert.load("exported").encode(text), lightbert.load(NAME).encode(text), atol=1e-4)


@needs_plots
def test_the_attention_of_the_bundled_model_is_drawn(here):
    run("analyse", "attention", NAME, "--text", "the film was good")
    assert [*Path().glob("attention.*")]


def test_the_bundled_model_is_converted(here):
    run("convert", NAME, "copy", "--to", "lightbert")
    assert torch.equal(lightbert.load("copy").table, lightbert.load(NAME).table)


def test_the_bundled_models_are_served(here):
    assert {"suspicion", "embed"} <= endpoints_of(load_text_model(NAME), device="cpu").keys()
    assert "fill" in endpoints_of(load_text_model(f"{NAME}/generator"), device="cpu")


@pytest.mark.parametrize(
    "words",
    [
        ("info", NAME),
        ("embed", NAME, "texts.txt", "--out", "vectors.npy"),
        ("prepare", "texts.txt", "--out", "data", "--tokenizer", NAME),
    ],
)
def test_missing_weights_are_one_clear_sentence(tmp_path, monkeypatch, capsys, words):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("the film\n")
    assert cli.main([*words]) == 1
    sentence = f"lightbert: the weights of the bundled model '{NAME}' are not in this installation"
    assert capsys.readouterr().err.startswith(sentence)


def test_info_without_weights_lists_the_presets(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    run("info", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert listed["bundled"] == []
    assert len(listed["presets"]) == len(PRESETS)


needs_weights = pytest.mark.skipif(
    not {*bundled.NAMES} <= {*bundled.installed()}, reason="the weights of the bundled models are not in this checkout"
)


@needs_weights
@pytest.mark.parametrize("name", [f"{NAME}/generator", STUDENT])
def test_the_real_models_fill_a_masked_word_with_the_likely_one(name):
    model = lightbert.load(name)
    words = ["[CLS]", "he", "was", "born", "in", "new", "[MASK]", "city", ".", "[SEP]"]
    ids = [model.tokenizer.token_to_id(word) for word in words]
    with torch.inference_mode():
        logits = model.heads["mlm"](model(torch.tensor([ids])), model.table)[0]
    assert model.tokenizer.id_to_token(int(logits[words.index("[MASK]")].argmax())) == "york"


@needs_weights
def test_the_student_has_the_depth_of_the_encoder_and_is_thinner():
    student, teacher = lightbert.load(STUDENT), lightbert.load(NAME)
    assert len(student.blocks) == len(teacher.blocks)
    assert student.config.width == 160 < teacher.config.width
    assert sum(each.numel() for each in student.parameters()) == 7_636_466
    assert "fill" in endpoints_of(student, device="cpu")


@needs_weights
def test_the_real_model_suspects_replaced_words():
    replaced = {
        "the capital of france is window .": "window",
        "the film was directed by a young potato and shot in london .": "potato",
        "the president of the united bananas gave a speech .": "bananas",
        "the war began in the summer of cheese and lasted four years .": "cheese",
        "she read the river before going to bed .": "river",
    }
    detector = Detector(load_text_model(NAME))
    ids = [detector.tokenizer.encode(text, add_special_tokens=False).ids for text in replaced]
    scored = detector.score([detector.words(each) for each in ids])
    found = [max(words, key=lambda word: word.suspicion).text for words in scored]
    assert sum(one == other for one, other in zip(found, replaced.values(), strict=True)) >= 4


@needs_weights
@pytest.mark.parametrize("name", [NAME, STUDENT])
def test_the_vectors_of_the_real_models_rank_a_paraphrase_first(name):
    model = lightbert.load(name)
    query, same, other = model.encode(
        ["the film was excellent", "the movie was very good", "the army crossed the river"], normalize=True
    )
    assert query @ same > query @ other
