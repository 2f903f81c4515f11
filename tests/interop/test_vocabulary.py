"""Hugging Face folders with vocab.txt and no tokenizer.json: the same ids as with transformers."""

import json

import pytest
from originals import original
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from words import SPECIAL

import lightbert
from lightbert.errors import InputError
from lightbert.interop import huggingface, load
from lightbert.interop.vocabulary import read_tokenizer

transformers = pytest.importorskip("transformers")

WORDS = [*SPECIAL, "the", "café", "cafe", "The", "film", "##s", "中", "国", "中国", "brand", "##new", "other"]
TEXTS = ["the café films", "The CAFÉ", "中国", "brandnew films", "BrandNew , brandnew", "a [MASK] of [mask]s <e1>the"]
FIRST = len(WORDS)


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": True} | flags


def folder_with(folder, **files):
    """Write vocab.txt, config.json and further JSON files, given by their names without `.json`."""
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    for name, content in {"config": {"model_type": "bert"}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


# As transformers 4 saves it.
SPECIAL_DECODER = {str(index): token(name, normalized=False, special=True) for index, name in enumerate(SPECIAL)}


def test_the_ids_are_those_of_transformers(tmp_path_factory, subtests):
    for files in (
        {},
        {"tokenizer_config": {"do_lower_case": False}},
        {"tokenizer_config": {"do_lower_case": True, "strip_accents": False}},
        {"tokenizer_config": {"do_lower_case": False, "strip_accents": True}},
        {"tokenizer_config": {"tokenize_chinese_chars": False, "strip_accents": None}},
        {"added_tokens": {"brandnew": FIRST}},
        {"added_tokens": {"second": FIRST + 1, "BrandNew": FIRST}},
        {
            "added_tokens": {"<e1>": FIRST, "BrandNew": FIRST + 1},
            "special_tokens_map": {"additional_special_tokens": ["<e1>"]},
        },
        {"special_tokens_map": {"mask_token": token("[MASK]", lstrip=True, normalized=False)}},
        {"tokenizer_config": {"extra_special_tokens": ["<e1>"]}},
        {"tokenizer_config": {"additional_special_tokens": [{"__type": "AddedToken", **token("<e1>", rstrip=True)}]}},
        {"tokenizer_config": {"bos_token": "[CLS]", "unk_token": "other"}},
        {
            "tokenizer_config": {
                "added_tokens_decoder": SPECIAL_DECODER
                | {str(FIRST): token("BrandNew", normalized=False), str(FIRST + 1): token("<e1>", special=True)}
            },
            "added_tokens": {"ignored": 3},
        },
        {"tokenizer_config": {"added_tokens_decoder": {"4": token("[MASK]", lstrip=True, special=True)}}},
        {"tokenizer_config": {"added_tokens_decoder": {str(FIRST): token("brandnew", single_word=True)}}},
    ):
        with subtests.test(files=files):
            tmp_path = tmp_path_factory.mktemp("case")
            ours = read_tokenizer(folder_with(tmp_path, **files))
            theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
            assert [ours.encode(text).ids for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]
            assert ours.get_vocab() == theirs.get_vocab()
            assert ours.encode("the", "film").ids == theirs("the", "film")["input_ids"]


def test_accents_chinese_and_added_tokens_follow_the_settings(tmp_path):
    config = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
    tokenizer = read_tokenizer(folder_with(tmp_path, tokenizer_config=config, added_tokens={"brandnew": FIRST}))
    assert tokenizer.encode("The café films").tokens == ["[CLS]", "the", "café", "film", "##s", "[SEP]"]
    assert tokenizer.encode("中国 brandnew").tokens == ["[CLS]", "中国", "brandnew", "[SEP]"]


def test_a_usual_folder_gives_the_tokenizer_of_its_vocabulary_alone(tmp_path):
    config = {
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        "additional_special_tokens": [],
        "added_tokens_decoder": SPECIAL_DECODER,
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
    }
    tokenizer = read_tokenizer(folder_with(tmp_path, tokenizer_config=config))
    assert tokenizer.to_str() == BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).to_str()


def test_a_folder_saved_by_transformers_gives_the_same_ids_without_its_tokenizer_json(tmp_path):
    saved = transformers.BertTokenizer.from_pretrained(folder_with(tmp_path), strip_accents=False)
    saved.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").unlink()
    folder_with(tmp_path / "saved")
    assert read_tokenizer(tmp_path / "saved").encode(TEXTS[0]).ids == saved(TEXTS[0])["input_ids"]


def test_the_settings_are_kept_in_a_written_folder(tmp_path):
    original("electra").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    folder_with(tmp_path, config=config, tokenizer_config={"strip_accents": False}, added_tokens={"brandnew": FIRST})
    huggingface.write(lightbert.load(tmp_path), tmp_path / "written")
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (tmp_path, tmp_path / "written"))
    assert before(TEXTS)["input_ids"] == after(TEXTS)["input_ids"]


def test_the_files_with_settings_are_downloaded():
    assert {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"} <= set(load._FILES)


def test_settings_that_cannot_be_followed_are_an_error(tmp_path_factory):
    for files, sentence in (
        ({"tokenizer_config": {"do_lower_case": "no"}}, "'do_lower_case' .* must be true or false, got 'no'"),
        ({"tokenizer_config": {"strip_accents": 1}}, "'strip_accents' .* must be true, false or null, got 1"),
        ({"tokenizer_config": {"tokenize_chinese_chars": None}}, "'tokenize_chinese_chars' .*, got None"),
        (
            {"added_tokens": {"brandnew": 40}},
            rf"'brandnew' must have the id {FIRST}, .* got 40 in added_tokens\.json; copy the model's tokenizer\.json",
        ),
        ({"added_tokens": {"the": 40}}, "'the' must have the id 5, .* got 40"),
        ({"added_tokens": {"brandnew": "x"}}, r"a token in added_tokens\.json must be an integer >= 0, got 'x'"),
        ({"added_tokens": {"": FIRST}}, r"a token in added_tokens\.json must be a text, .* got ''"),
        ({"tokenizer_config": {"added_tokens_decoder": ["a"]}}, r"'added_tokens_decoder' .* got \['a'\]"),
        ({"tokenizer_config": {"added_tokens_decoder": {"-1": token("a")}}}, "integer >= 0, got '-1'"),
        ({"tokenizer_config": {"added_tokens_decoder": {"17": {"content": 3}}}}, "must be a text, .* got {'content'"),
        ({"tokenizer_config": {"added_tokens_decoder": {"17": token("a", lstrip="no")}}}, "'lstrip': 'no'"),
        ({"tokenizer_config": {"extra_special_tokens": {"a": "<e1>"}}}, "'extra_special_tokens' .* a list of tokens"),
        ({"tokenizer_config": {"sep_token": ["x"]}}, r"a token in sep_token must be a text, .* got \['x'\]"),
        ({"tokenizer_config": {"sep_token": "<s>"}}, r"vocab\.txt' is not a vocabulary of BERT: sep_token not found"),
    ):
        tmp_path = tmp_path_factory.mktemp("case")
        with pytest.raises(InputError, match=sentence):
            read_tokenizer(folder_with(tmp_path, **files))
