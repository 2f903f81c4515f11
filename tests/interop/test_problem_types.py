"""`problem_type` in both directions: single-label, multi-label and regression."""

import json

import pytest
import torch
from originals import original
from words import tokenizer

import lightbert
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.predict.predictor import kind_of_model

transformers = pytest.importorskip("transformers")

SEVERAL, ONE, NUMBER = "multi_label_classification", "single_label_classification", "regression"
UNSCALED = Regress(float("-inf"), float("inf"), scaled=False)
NAMES = ("no", "maybe", "yes")
SINGLE = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
TEXTS = ["w1 w2 w3 w4", "w5", "w6 w7 w8", "w9 w10", "w11 w12 w13 w14 w15 w16"]


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def classifier(folder, body="bert", **settings):
    """Have transformers write a classifier with a tokenizer."""
    model = original(body, "ForSequenceClassification", **settings)
    model.save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    return model


@torch.no_grad()
def logits(model, text):
    return model(torch.tensor([tokenizer().encode(text).ids])).logits[0]


def test_multi_label_predictions_are_the_sigmoid_of_transformers_logits_in_both_directions(tmp_path_factory, subtests):
    for body in ("bert", "electra", "convbert", "mobilebert"):
        with subtests.test(body=body):
            tmp_path = tmp_path_factory.mktemp("case")
            theirs = classifier(tmp_path / "before", body, problem_type=SEVERAL)
            lightbert.save(lightbert.load(tmp_path / "before"), tmp_path / "ours")
            huggingface.write(lightbert.load(tmp_path / "ours"), tmp_path / "after")
            again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "after")
            assert again.config.problem_type == SEVERAL
            for text in TEXTS:
                shares = dict(zip(NAMES, logits(theirs, text).sigmoid().tolist(), strict=True))
                assert logits(again, text).sigmoid().tolist() == pytest.approx(list(shares.values()), abs=1e-5)
                for folder in ("before", "ours", "after"):
                    prediction = lightbert.load(tmp_path / folder).predict(text)
                    assert prediction["probabilities"] == pytest.approx(shares, abs=1e-5)
                    assert prediction["labels"] == [name for name, share in shares.items() if share > 0.5]


def test_single_label_classification_uses_softmax(tmp_path):
    theirs = classifier(tmp_path / "before", problem_type=ONE)
    ours = lightbert.load(tmp_path / "before")
    prediction = ours.predict(TEXTS[0])
    expected = dict(zip(NAMES, logits(theirs, TEXTS[0]).softmax(-1).tolist(), strict=True))
    assert prediction["probabilities"] == pytest.approx(expected, abs=1e-5)
    huggingface.write(ours, tmp_path / "after")
    assert (
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "after").config.problem_type == ONE
    )


@pytest.mark.parametrize("problem", [NUMBER, None])
def test_a_regression_prediction_is_transformers_logit(tmp_path, problem):
    theirs = classifier(tmp_path / "before", problem_type=problem, **SINGLE)
    ours = lightbert.load(tmp_path / "before")
    assert kind_of_model(ours) == UNSCALED
    for text in TEXTS:
        assert ours.predict(text)["score"] == pytest.approx(logits(theirs, text).item(), rel=1e-4, abs=1e-5)
    huggingface.write(ours, tmp_path / "after")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "after")
    assert (again.config.problem_type, again.config.num_labels) == (NUMBER, 1)


def test_an_unset_problem_type_stays_unset(tmp_path):
    classifier(tmp_path / "before")
    ours = lightbert.load(tmp_path / "before")
    assert ours.task == {}
    assert kind_of_model(ours) == Classify(NAMES)
    assert kind_of_model(ours, like=Labels(NAMES)) == Labels(NAMES)
    huggingface.write(ours, tmp_path / "after")
    assert "problem_type" not in json.loads((tmp_path / "after" / "config.json").read_text())


def test_outputs_with_default_names_can_be_named_later(tmp_path):
    classifier(tmp_path, problem_type=SEVERAL, id2label=None, label2id=None, num_labels=3)
    ours = lightbert.load(tmp_path)
    assert (ours.labels, kind_of_model(ours)) == ((), Labels(("LABEL_0", "LABEL_1", "LABEL_2")))
    assert kind_of_model(ours, labels=("a", "b", "c")) == Labels(("a", "b", "c"))


def test_the_problem_type_of_another_head_is_ignored(tmp_path):
    original("bert", "ForTokenClassification", problem_type=SEVERAL).save_pretrained(tmp_path)
    assert lightbert.load(tmp_path).task == {}


@pytest.mark.parametrize(
    ("problem", "labels", "sentence"),
    [
        (SEVERAL, SINGLE, "doesn't support problem_type 'multi_label_classification' with one output"),
        (NUMBER, {}, "doesn't support problem_type 'regression' with 3 outputs"),
    ],
)
def test_an_unsupported_problem_type_is_an_error(tmp_path, problem, labels, sentence):
    classifier(tmp_path, problem_type=problem, **labels)
    with pytest.raises(InputError, match=sentence):
        lightbert.load(tmp_path)


def test_the_error_for_an_unknown_problem_type_suggests_the_nearest(tmp_path):
    classifier(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problem_type": "multilabel_classification"}))
    with pytest.raises(InputError, match="did you mean 'multi_label_classification'"):
        lightbert.load(tmp_path)


def test_transformers_pipeline_reads_the_problem_type_of_our_folders(tmp_path):
    classifier(tmp_path / "theirs", problem_type=SEVERAL)
    ours = lightbert.load(tmp_path / "theirs")
    lightbert.save(ours, tmp_path / "ours")
    found = transformers.pipeline("text-classification", model=str(tmp_path / "ours"))(TEXTS[0], top_k=None)
    shares = {each["label"]: each["score"] for each in found}
    assert shares == pytest.approx(ours.predict(TEXTS[0])["probabilities"], abs=1e-5)


def test_the_problem_type_of_a_new_head_is_saved_with_it(tmp_path):
    classifier(tmp_path / "theirs", problem_type=ONE)
    lightbert.save(lightbert.load(tmp_path / "theirs"), tmp_path / "ours")
    for problem, kind in ((SEVERAL, Labels(NAMES)), (ONE, Classify(NAMES))):
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "ours", problem_type=problem
        )
        theirs.save_pretrained(tmp_path / "after")
        assert theirs.config.problem_type == problem
        assert kind_of_model(lightbert.load(tmp_path / "after")) == kind
