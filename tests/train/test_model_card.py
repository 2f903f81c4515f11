"""README.md of a trained model: what it is, data, recipe, command, metrics, and how to load it."""

import re
import tomllib

import pytest
from tiny_runs import distillation_of, recipe_of

import lightbert
from lightbert import cli
from lightbert.commands import pretrain
from lightbert.config import from_mapping
from lightbert.train.model_card import changed_keys, publish
from lightbert.train.settings import Recipe


def front_matter(card):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(card.split("---\n")[1])


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "mine"
    pretrain.run(recipe_of(corpus, out), ("lightbert", "pretrain", "tiny-rtd", f"data={corpus / 'data'}", "steps=12"))
    return out


@pytest.fixture
def card(trained):
    return (trained / "final" / "README.md").read_text()


def test_a_pretrained_model_has_a_card_without_absolute_paths(trained, corpus, card):
    assert "# ConvBERT encoder, pre-trained by replaced-token detection" in card
    assert "for 12 steps" in card
    assert "lightbert pretrain tiny-rtd data=data steps=12" in card
    assert re.search(r"\| rtd_accuracy \| 0\.\d{4} \|", card)
    assert re.search(r"\| tokens \| [\d,]+ \|", card)
    assert "the baseline that predicts 'original' for every token" in card
    assert not (trained / "generator" / "README.md").exists()
    assert str(corpus) not in card
    assert str(trained.parent) not in card
    assert not re.search(r"[\s=\"'`(]/\w", card)


def test_the_front_matter_is_that_of_the_hub(trained, card):
    assert front_matter(card) == {
        "library_name": "lightbert",
        "pipeline_tag": "feature-extraction",
        "tags": ["lightbert", "convbert", "replaced-token-detection"],
    }
    hub = pytest.importorskip("huggingface_hub")
    assert hub.ModelCard.load(trained / "final" / "README.md").data.library_name == "lightbert"


def test_the_recipe_of_the_card_trains_the_same_model(trained, corpus, card):
    [toml] = re.findall(r"```toml\n(.*?)```", card, re.DOTALL)
    values = tomllib.loads(toml)
    assert (values["data"], values["out"], values["model"]) == ("data", "mine", "model")
    places = {"data": str(corpus / "data"), "out": str(trained), "model": str(corpus / "model")}
    assert from_mapping(Recipe, values | places) == recipe_of(corpus, trained)


def test_the_python_of_the_card_runs(trained, card):
    first, *_ = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, object] = {}
    exec(first.replace('"FOLDER"', repr(str(trained / "final"))), names)
    assert isinstance(names["model"], lightbert.tasks.predict.text_model.TextModel)


def test_the_conversion_of_the_card_gives_the_named_class(trained, tmp_path, card):
    transformers = pytest.importorskip("transformers")
    [line] = re.findall(r"```sh\n(lightbert convert .*)\n```", card)
    words = line.replace("HF_FOLDER", str(tmp_path / "hf")).replace(" FOLDER", f" {trained / 'final'}").split()
    assert cli.main(words[1:]) == 0
    [name] = re.findall(r"transformers reads as `(\w+)`", card)
    [auto] = re.findall(r"from transformers import (\w+)", card)
    assert type(getattr(transformers, auto).from_pretrained(tmp_path / "hf")).__name__ == name


def test_a_distilled_model_names_its_teacher(corpus, tmp_path):
    pretrain.run(distillation_of(corpus, tmp_path), ("lightbert", "distill", "tiny-distill"))
    card = (tmp_path / "final" / "README.md").read_text()
    assert "# MobileBERT encoder, distilled from teacher" in card
    # Examples are pairs of texts, so that the model has a second head.
    assert "transformers reads as `MobileBertForPreTraining`" in card
    assert "from transformers import AutoModelForPreTraining" in card
    assert front_matter(card)["pipeline_tag"] == "fill-mask"
    assert "distillation" in front_matter(card)["tags"]


def test_a_family_that_transformers_lacks_says_how_to_load_it(corpus, tmp_path):
    sizes = {"positions": 32, "narrow": 8, "width": 16, "depth": 1, "inner": 32}
    recipe = recipe_of(corpus, tmp_path, model="composite-tiny", change=sizes, objective="mlm", steps=2)
    pretrain.run(recipe)
    card = (tmp_path / "final" / "README.md").read_text()
    assert "transformers has no class for this model. After `import lightbert`" in card
    assert "lightbert convert" not in card
    assert "the baseline that predicts token frequencies" in card


def test_the_card_lists_changed_keys_and_the_last_part_of_absolute_paths():
    for value, shown in (
        ("/home/someone/corpus", "corpus"),
        ("runs/mine/data", "runs/mine/data"),
        ({"train": "/a/b.csv", "n": 3}, {"train": "b.csv", "n": 3}),
        (["/a/*.txt", True], ["*.txt", True]),
    ):
        assert publish(value) == shown
    changed = {"data": "d", "out": "o", "steps": 5, "optimizer": {"beta2": 0.98}}
    assert changed_keys(from_mapping(Recipe, changed)) == changed
