"""Our families in transformers: lightbert folders with its auto classes and pipelines."""

import inspect
import json
from dataclasses import replace

import pytest
import torch
from originals import batch
from words import tokenizer

import lightbert
from lightbert.models import PRESETS, build
from lightbert.nn.inference import Inference

transformers = pytest.importorskip("transformers")

SMALL = {"vocab": 60, "depth": 2}
FAMILIES = {
    "bert": replace(PRESETS["bert-tiny"], **SMALL),
    "convbert": replace(PRESETS["convbert-tiny"], **SMALL),
    "composite": replace(PRESETS["composite-tiny"], **SMALL),
    "mobilebert": replace(PRESETS["mobilebert-nano"], **SMALL),
    "combined": replace(PRESETS["mobilebert-nano"], convolution="span", relative="composite", **SMALL),
}
HEADS = {
    transformers.AutoModelForMaskedLM: {"mlm": {}},
    transformers.AutoModelForSequenceClassification: {"classify": {"labels": 3, "hidden": "tanh"}},
    transformers.AutoModelForTokenClassification: {"tokens": {"labels": 4}},
    transformers.AutoModelForQuestionAnswering: {"span": {}},
}


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def randomised(config, heads=None):
    model = build(config, heads=heads).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def inputs():
    ids, mask, segments = batch()
    return {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": segments}


def assert_equal_folders(before, after):
    ours, again = lightbert.load(before), lightbert.load(after)
    assert ours.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in ours.state_dict().items())
    assert json.loads((before / "config.json").read_text()) == json.loads((after / "config.json").read_text())


def test_every_family_round_trips_through_automodel_bit_for_bit(tmp_path_factory, subtests):
    for family in FAMILIES:
        with subtests.test(family=family):
            tmp_path = tmp_path_factory.mktemp("case")
            ours = randomised(FAMILIES[family])
            lightbert.save(ours, tmp_path / "before")
            theirs, info = transformers.AutoModel.from_pretrained(tmp_path / "before", output_loading_info=True)
            assert not any(info.values())
            assert torch.equal(theirs(**inputs()).last_hidden_state, ours(*batch()))
            theirs.save_pretrained(tmp_path / "after")
            assert_equal_folders(tmp_path / "before", tmp_path / "after")


def test_every_head_round_trips_through_its_auto_class_bit_for_bit(tmp_path_factory, subtests):
    classifier = transformers.AutoModelForSequenceClassification
    pooled = [(classifier, {"classify": {"labels": 3, "pool": pool}}) for pool in ("mean", "max", "mean-max")]
    for auto, heads in (*HEADS.items(), *pooled):
        with subtests.test(auto=auto, heads=heads):
            tmp_path = tmp_path_factory.mktemp("case")
            ours = randomised(FAMILIES["convbert"], heads)
            lightbert.save(ours, tmp_path / "before")
            theirs, info = auto.from_pretrained(tmp_path / "before", output_loading_info=True)
            assert not any(info.values())
            (kind,) = ours.heads
            result = theirs(**inputs())
            logits = (result.start_logits, result.end_logits) if kind == "span" else (result.logits,)
            for our, their in zip(Inference(ours, kind)(*batch()), logits, strict=True):
                assert torch.equal(our, their)
            theirs.save_pretrained(tmp_path / "after")
            assert_equal_folders(tmp_path / "before", tmp_path / "after")


def test_a_model_without_a_head_gets_a_new_one_that_is_reported_as_missing(tmp_path_factory, subtests):
    for auto in HEADS:
        with subtests.test(auto=auto):
            tmp_path = tmp_path_factory.mktemp("case")
            ours = randomised(FAMILIES["composite"])
            lightbert.save(ours, tmp_path / "body")
            theirs, info = auto.from_pretrained(tmp_path / "body", output_loading_info=True)
            assert all(name.startswith("model.heads.") for name in info["missing_keys"])
            assert all(
                torch.equal(tensor, theirs.model.state_dict()[name]) for name, tensor in ours.state_dict().items()
            )
            fresh = {name: theirs.state_dict()[name] for name in info["missing_keys"]}
            norms = [name for name in fresh if "norm.weight" in name]
            assert all(tensor.eq(0).all() for name, tensor in fresh.items() if name.endswith("bias"))
            assert all(fresh[name].eq(1).all() for name in norms)
            assert all(0 < fresh[name].std() < 0.04 for name in fresh if name.endswith("weight") and name not in norms)


def test_the_heads_of_pre_training_are_not_reported_as_unexpected(tmp_path, caplog):
    lightbert.save(randomised(FAMILIES["bert"], {"mlm": {}, "rtd": {}}), tmp_path / "both")
    transformers.utils.logging.set_verbosity_warning()
    auto = transformers.AutoModelForSequenceClassification
    _, info = auto.from_pretrained(tmp_path / "both", output_loading_info=True)
    assert not info["unexpected_keys"]
    # The new head is reported as new, and nothing else.
    assert "heads.classify" in caplog.text
    assert "rtd" not in caplog.text
    assert "mlm" not in caplog.text
    # Heads that the class doesn't have are dropped.
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "both").save_pretrained(tmp_path / "one")
    assert list(lightbert.load(tmp_path / "one").heads) == ["mlm"]


def test_the_embeddings_and_the_mlm_head_are_resized(tmp_path_factory, subtests):
    for family, tokens, mean_resizing in (
        ("bert", 80, True),
        ("bert", 50, False),
        ("convbert", 80, False),
        ("convbert", 50, True),
        ("mobilebert", 80, True),
        ("mobilebert", 50, False),
    ):
        with subtests.test(family=family, tokens=tokens):
            tmp_path = tmp_path_factory.mktemp("case")
            lightbert.save(randomised(FAMILIES[family], {"mlm": {}}), tmp_path / "before")
            theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "before")
            ids, mask, segments = batch()
            texts = {**inputs(), "input_ids": ids % 50}
            before, kept = theirs(**texts).logits, min(tokens, 60)
            theirs.resize_token_embeddings(tokens, mean_resizing=mean_resizing)
            logits = theirs(**texts).logits
            assert logits.shape[-1] == theirs.config.vocab_size == theirs.model.config.vocab == tokens
            assert torch.allclose(logits[..., :kept], before[..., :kept], rtol=1e-4, atol=1e-3)
            theirs.save_pretrained(tmp_path / "after")
            again, info = transformers.AutoModelForMaskedLM.from_pretrained(
                tmp_path / "after", output_loading_info=True
            )
            assert not any(info.values())
            assert torch.equal(again(**texts).logits, logits)
            ours = lightbert.load(tmp_path / "after")
            assert torch.equal(ours.heads["mlm"](ours(ids % 50, mask, segments), ours.table), logits)


def test_new_tokens_get_the_mean_in_the_mlm_head_or_zero(tmp_path):
    lightbert.save(randomised(FAMILIES["mobilebert"], {"mlm": {}}), tmp_path)
    for mean_resizing in (True, False):
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
        theirs.resize_token_embeddings(60, pad_to_multiple_of=16, mean_resizing=mean_resizing)
        head = theirs.model.heads["mlm"]
        for weight in (head.bias, head.extra):
            expected = weight[:60].mean(0) if mean_resizing else torch.zeros_like(weight[0])
            assert torch.allclose(weight[60:], expected.expand_as(weight[60:]), atol=1e-6)
            assert len(weight) == 64


def test_the_embeddings_of_a_body_are_resized(tmp_path):
    lightbert.save(randomised(FAMILIES["composite"]), tmp_path / "before")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "before")
    assert theirs.resize_token_embeddings().num_embeddings == 60
    theirs.resize_token_embeddings(70)
    theirs.save_pretrained(tmp_path / "after")
    assert lightbert.load(tmp_path / "after").table.shape[0] == 70


def test_a_resized_model_is_trained(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"], {"mlm": {}}), tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    theirs.resize_token_embeddings(80)
    theirs(**inputs(), labels=batch()[0] + 20).loss.backward()
    assert theirs.get_input_embeddings().weight.grad[20:].any()
    assert theirs.model.heads["mlm"].bias.grad[60:].any()


def test_the_word_embeddings_can_be_replaced(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path)
    table = torch.nn.Embedding(60, 128)
    theirs.set_input_embeddings(table)
    assert theirs.get_input_embeddings() is table
    assert theirs.model.table is table.weight


def test_a_new_model_is_initialized_by_our_rules():
    torch.manual_seed(7)
    theirs = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model("lightbert", **description("convbert"))
    )
    torch.manual_seed(7)
    ours = build(FAMILIES["convbert"])
    assert all(torch.equal(tensor, theirs.model.state_dict()[name]) for name, tensor in ours.state_dict().items())


def description(family):
    from lightbert.models import folder

    content = folder.description(build(FAMILIES[family], device="meta"))
    return {key: content[key] for key in ("format", "family", "config", "heads")}


def test_label_names_round_trip_through_transformers(tmp_path):
    ours = randomised(FAMILIES["bert"], {"classify": {"labels": 2}})
    ours.labels = ("bad", "good")
    lightbert.save(ours, tmp_path / "before")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "before")
    assert theirs.config.id2label == {0: "bad", 1: "good"}
    assert theirs.config.label2id == {"bad": 0, "good": 1}
    theirs.save_pretrained(tmp_path / "after")
    assert_equal_folders(tmp_path / "before", tmp_path / "after")
    assert lightbert.load(tmp_path / "after").labels == ("bad", "good")


def test_labels_can_be_given_for_a_new_head(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path / "body")
    names = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "body", **names).save_pretrained(
        tmp_path / "tagger"
    )
    tagger = lightbert.load(tmp_path / "tagger")
    assert tagger.labels == ("a", "b", "c")
    assert tagger.head_settings["tokens"]["labels"] == 3


def test_one_label_is_a_regression(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path / "body")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "body", num_labels=1)
    result = theirs(**inputs(), labels=torch.tensor([0.5, 1.5, 2.5]))
    assert result.logits.shape == (3, 1)
    assert torch.allclose(result.loss, (result.logits[:, 0] - torch.tensor([0.5, 1.5, 2.5])).pow(2).mean())
    theirs.save_pretrained(tmp_path / "regression")
    assert list(lightbert.load(tmp_path / "regression").heads) == ["regress"]
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "regression")
    assert torch.equal(again(**inputs()).logits, theirs.eval()(**inputs()).logits)


def test_losses_are_those_of_transformers(tmp_path):
    """The same logits and labels with a class of transformers."""
    from originals import original

    from lightbert.interop import huggingface

    ids, mask, segments = batch()
    spans = {"start_positions": torch.tensor([1, 99, 0]), "end_positions": torch.tensor([2, 99, 1])}
    cases = {
        "ForMaskedLM": (transformers.AutoModelForMaskedLM, {"labels": ids.masked_fill(~mask, -100)}),
        "ForSequenceClassification": (
            transformers.AutoModelForSequenceClassification,
            {"labels": torch.tensor([0, 2, 1])},
        ),
        "ForTokenClassification": (
            transformers.AutoModelForTokenClassification,
            {"labels": segments.masked_fill(~mask, -100)},
        ),
        "ForQuestionAnswering": (transformers.AutoModelForQuestionAnswering, spans),
    }
    for suffix, (auto, labels) in cases.items():
        theirs = original("convbert", suffix)
        theirs.save_pretrained(tmp_path / suffix)
        lightbert.save(huggingface.read(tmp_path / suffix), tmp_path / f"{suffix}-ours")
        ours = auto.from_pretrained(tmp_path / f"{suffix}-ours")
        assert torch.allclose(ours(**inputs(), **labels).loss, theirs(**inputs(), **labels).loss, rtol=1e-5)


def test_float_labels_are_multi_label_targets(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    aims = torch.tensor([[1.0, 0.0, 1.0]] * 3)
    result = theirs(**inputs(), labels=aims)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(result.logits, aims)
    assert torch.equal(result.loss, expected)


def test_hidden_states_attentions_and_tuples_are_returned_on_request(tmp_path):
    lightbert.save(randomised(FAMILIES["convbert"], {"mlm": {}}), tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    result = theirs(**inputs(), output_hidden_states=True, output_attentions=True)
    assert len(result.hidden_states) == 3
    assert [tuple(maps.shape) for maps in result.attentions] == [(3, 2, 11, 11)] * 2
    assert torch.allclose(theirs(**inputs(), return_dict=False)[0], result.logits, atol=1e-5)
    theirs.config.return_dict = False
    assert torch.allclose(theirs(**inputs())[0], result.logits, atol=1e-5)


def test_gradient_checkpointing_changes_no_gradient(tmp_path):
    lightbert.save(randomised(replace(FAMILIES["bert"], dropout=0.0, attention_dropout=0.0), {"mlm": {}}), tmp_path)
    gradients = []
    for checkpointing in (False, True):
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).train()
        if checkpointing:
            theirs.gradient_checkpointing_enable()
        theirs(**inputs(), labels=batch()[0]).loss.backward()
        gradients.append(theirs.get_input_embeddings().weight.grad)
    assert torch.allclose(*gradients, atol=1e-6)


def test_our_sizes_have_transformers_names(tmp_path):
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (60, 128, 2)
    assert (config.num_attention_heads, config.max_position_embeddings) == (4, 128)


def test_the_fill_mask_pipeline_fills(tmp_path_factory, subtests):
    for family in FAMILIES:
        with subtests.test(family=family):
            tmp_path = tmp_path_factory.mktemp("case")
            model = randomised(FAMILIES[family], {"mlm": {}})
            words = tokenizer()
            lightbert.save(model, tmp_path, tokenizer=words)
            fill = transformers.pipeline("fill-mask", model=str(tmp_path))
            best = fill("w1 [MASK] w3")[0]
            ids = torch.tensor([words.encode("w1 [MASK] w3").ids])
            logits = model.heads["mlm"](model(ids), model.table)[0, 2]
            assert best["token"] == logits.argmax()
            assert best["score"] == pytest.approx(logits.softmax(-1).max().item(), rel=1e-4)


def test_the_text_classification_pipeline_returns_the_label(tmp_path):
    model = randomised(FAMILIES["convbert"], {"classify": {"labels": 2}})
    model.labels = ("bad", "good")
    lightbert.save(model, tmp_path, tokenizer=tokenizer())
    classify = transformers.pipeline("text-classification", model=str(tmp_path))
    assert {answer["label"] for answer in classify("w1 w2", top_k=2)} == {"bad", "good"}
    assert classify(["w1 w2 w9", "w5"], batch_size=2)[0]["label"] in model.labels


def test_the_trainer_passes_every_input(tmp_path):
    """The Trainer drops the columns of a dataset that are not arguments of `forward`."""
    lightbert.save(randomised(FAMILIES["bert"]), tmp_path)
    for auto in (transformers.AutoModel, *HEADS):
        names = inspect.signature(auto.from_pretrained(tmp_path).forward).parameters
        assert {"input_ids", "attention_mask", "token_type_ids"} <= names.keys()
