"""A model is an encoder with metadata: public parameter names, typed fields, complete copies."""

import copy
from dataclasses import fields, replace

import pytest
import torch
from small import VARIANTS, ids
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lightbert.errors import InputError
from lightbert.models import Metadata, Model, build
from lightbert.nn.encoder import Encoder
from lightbert.nn.pooling_settings import Pooling

CONFIG = VARIANTS["convbert-small"]
FIELDS = [each.name for each in fields(Metadata)]


def full() -> Model:
    """A model with a distinct value in every field."""
    model = build(CONFIG, heads={"classify": {"labels": 2}}).eval()
    model.tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    model.labels, model.task, model.origin = ("no", "yes"), {"kind": "classify"}, "electra"
    model.pooling = Pooling("cls")
    model.ranges = {"blocks.0.output": (-1.0, 2.0)}
    return model


def test_an_encoder_has_no_metadata():
    encoder = CONFIG.build()
    assert type(encoder) is Encoder
    assert not [name for name in FIELDS if hasattr(encoder, name)]


def test_parameters_have_the_names_of_the_encoder():
    model = build(CONFIG, heads={"classify": {"labels": 2}})
    names = {name for name in model.state_dict() if not name.startswith("heads.")}
    assert names == CONFIG.build().state_dict().keys()
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"embeddings", "blocks", "heads"}
    assert {name for name, _ in model.named_children()} == {"embeddings", "blocks", "heads"}


def test_a_model_shares_the_modules_of_its_encoder():
    encoder = CONFIG.build().to_empty(device="cpu").eval()
    encoder.checkpointing = True
    model = Model(encoder, Metadata(CONFIG))
    assert all(mine is its for mine, its in zip(model.parameters(), encoder.parameters(), strict=True))
    assert (model.checkpointing, model.training) == (True, False)
    assert (model.width, model.positions, model.fp16) == (encoder.width, encoder.positions, encoder.fp16)


def test_the_encoder_of_a_model_shares_its_modules_and_has_no_metadata():
    model = build("convbert-tiny", heads={"rtd": {}})
    encoder = model.encoder
    assert type(encoder) is Encoder
    assert encoder.heads is model.heads
    assert {id(p) for p in encoder.parameters()} == {id(p) for p in model.parameters()}


def test_metadata_has_every_field_and_is_copied_whole():
    model, other = full(), build(replace(CONFIG, dropout=0.3), heads={"classify": {"labels": 2}})
    assert not [name for name in FIELDS if not getattr(model, name)], "a field that is not set would hide a loss"
    other.metadata = replace(model.metadata, config=other.config)
    for name in FIELDS:
        expected = other.config if name == "config" else getattr(model, name)
        assert getattr(other, name) is expected


def test_a_deep_copy_has_its_own_weights_and_all_metadata():
    model = full()
    copied = copy.deepcopy(model)
    assert copied.metadata.labels == model.labels
    assert copied.tokenizer.to_str() == model.tokenizer.to_str()
    with torch.no_grad():
        copied.table.zero_()
    assert model.table.any()


def test_a_model_behaves_like_any_module():
    model, tokens = full(), ids(2, 5)
    assert isinstance(model, torch.nn.Module)
    assert model.device == torch.device("cpu")
    assert model.bfloat16()(tokens).dtype is torch.bfloat16
    assert model.float().train().blocks[0].training
    again = build(CONFIG, heads={"classify": {"labels": 2}}).eval()
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(tokens), model.eval()(tokens))


def test_a_missing_tokenizer_is_a_one_line_error():
    with pytest.raises(InputError, match="the model has no tokenizer: put its"):
        build(CONFIG).require_tokenizer()


def test_a_tokenizer_with_more_entries_than_embeddings_is_an_error():
    model = full()
    assert model.require_tokenizer() is model.tokenizer
    many = {"[UNK]": 0} | {f"w{number}": number for number in range(1, CONFIG.vocab + 1)}
    model.tokenizer = Tokenizer(WordLevel(many, unk_token="[UNK]"))
    with pytest.raises(InputError, match=r"must not be larger than that of the model \(.* embeddings\)"):
        model.require_tokenizer()
