"""Fine-tuning of vectors: what is saved, exact resumption, and errors of one sentence."""

from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import finetune, only, write_model

import lightbert
from lightbert.errors import InputError
from lightbert.nn.pooling_settings import Pooling

PAIRS = ("the film was good,good film", "a bad film,bad .", "the film,film .", "a good,was good", "bad bad,was bad")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The overrides of each recipe."""
    where = tmp_path_factory.mktemp("files")
    model = write_model(where / "model", dropout=0.1)
    tables = {
        "pairs": ["text,text_b,other,share", *(f"{pair},the,{n}" for n, pair in enumerate(PAIRS * 4, 1))],
        "graded": ["text,text_b,score", *(f"{pair},{n % 5}.5" for n, pair in enumerate(PAIRS * 4))],
        "texts": ["text", *(pair.partition(",")[0] for pair in PAIRS * 4)],
    }
    for name, lines in tables.items():
        (where / f"{name}.csv").write_text("\n".join(lines) + "\n")
    shared = (f"model={model}", "vector.sizes=[4]")
    return {
        "pairs": (*shared, f"data.train={where}/pairs.csv", "data.negative=other", "data.weight=share"),
        "graded": (*shared, f"data.train={where}/graded.csv", "vector.size=6", "vector.graded=angle"),
        "texts": (*shared, f"data.train={where}/texts.csv", f"data.dev={where}/graded.csv", "vector.chunk=3"),
    }


@pytest.mark.parametrize("name", ["pairs", "graded", "texts"])
def test_a_run_saves_its_pooling_and_resumes_exactly(files, tmp_path: Path, name: str):
    overrides = (*files[name], "vector.pool=max", "data.prompt=bad ", "data.prompt_b=good ")
    whole = only(finetune(f"vectors-{name}", *overrides, f"out={tmp_path / 'whole'}"))
    assert whole.finished
    assert set(whole.metrics) == ({"mrr", "accuracy"} if name == "pairs" else {"spearman", "pearson"})
    assert not only(finetune(f"vectors-{name}", *overrides, f"out={tmp_path / 'parts'}", stop_after=4)).finished
    finetune(f"vectors-{name}", *overrides, f"out={tmp_path / 'parts'}")
    for file in ("final/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    model = lightbert.load(tmp_path / "whole" / "final")
    prompts = {"query": "bad ", "document": "good "}
    assert model.pooling == Pooling("max", True, 12, name == "graded", prompts, sizes=(4,))
    assert model.encode("film", size=4).shape == (4,)
    assert model.encode("film", prompt_name="query").shape == (6 if name == "graded" else 16,)
    assert list(model.heads) == (["vector"] if name == "graded" else [])


def test_texts_that_belong_together_come_nearer(tmp_path: Path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text,text_b\n" + "good film,the .\nbad film,a a\n" * 8)
    model = write_model(tmp_path / "model", dropout=0.0, attention_dropout=0.0)
    run = (f"model={model}", f"data.train={pairs}", "data.hold_out=0", "choose=last", "epochs=10")
    finetune("vectors-pairs", *run, f"out={tmp_path / 'run'}", "vector.temperature=0.2")
    first, second = ([["good film", "bad film"], ["the .", "a a"]][side] for side in (0, 1))
    trained = lightbert.load(tmp_path / "run" / "final")
    cosines = trained.encode(first) @ trained.encode(second).T
    assert (np.diag(cosines) > cosines[[0, 1], [1, 0]] + 0.5).all()


@pytest.mark.parametrize(
    ("name", "content", "overrides", "sentence"),
    [
        ("pairs", "text,other\na,b\n", (), r"text_b"),
        ("pairs", "text,text_b\na,b\n", ("data.negative=n",), r"data\.negative"),
        ("pairs", "text,text_b,w\na,b,-1\n", ("data.weight=w",), "in column 'w', which must be a weight >= 0"),
        ("graded", "text,text_b,score\na,b,much\n", (), "has 'much' in column 'score', which must be a number"),
        ("graded", "text,text_b,score\na,b,1\na,c,1\n", (), r"must differ, got 1 in all rows"),
        ("texts", "text\na\nb\n", ("change.dropout=0", "change.attention_dropout=0"), "requires a model with dropout"),
        ("texts", "text\na\nb\n", ("vector.sizes=[16]",), r"vector\.sizes must be < 16, the size of the vectors"),
        ("texts", "text\na\nb\n", ("vector.sizes=[4,4]",), r"vector\.sizes must be distinct sizes >= 1, got \[4, 4\]"),
    ],
)
def test_bad_input_is_one_sentence(files, tmp_path: Path, name, content, overrides, sentence):
    table = tmp_path / "my.csv"
    table.write_text(content)
    with pytest.raises(InputError, match=sentence):
        finetune(f"vectors-{name}", files[name][0], f"data.train={table}", f"out={tmp_path / 'run'}", *overrides)
