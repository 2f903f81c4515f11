"""A datatrove pipeline writes the same shards as `lightbert prepare`."""

import random
import runpy
from pathlib import Path

import pytest

from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.errors import InputError

pytest.importorskip("datatrove")

# These imports require datatrove.
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter

from lightbert.data.datatrove_step import FinishShards, ReadText, WriteShards

SHARD = 2000


@pytest.fixture
def corpus(tmp_path):
    choose = random.Random(0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for file in range(5):
        documents = [" ".join(choose.choices(["The", "cat", "sat.", "Dogs", "ran."], k=20)) for _ in range(30)]
        (folder / f"{file}.txt").write_text("\n\n".join(documents))
    return folder


@pytest.fixture
def prepared(corpus, tmp_path):
    settings = Settings(
        sources=(str(corpus),), vocab_size=80, sentences="split", held_out=0.2, shard_characters=SHARD, streams=3
    )
    prepare(settings, tmp_path / "prepared", workers=1)
    return tmp_path / "prepared"


def writer(out, prepared):
    return WriteShards(out, prepared, sentences="split", held_out=0.2, shard_characters=SHARD)


def execute(steps, logs, tasks=1):
    LocalPipelineExecutor(steps, tasks=tasks, workers=1, logging_dir=str(logs)).run()


def all_but_manifest(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def test_the_local_executor_writes_the_same_bytes(corpus, prepared, tmp_path):
    step = writer(tmp_path / "out", prepared)
    execute([ReadText(str(corpus)), step], tmp_path / "logs" / "encode", tasks=3)
    execute([FinishShards(step)], tmp_path / "logs" / "finish")
    assert all_but_manifest(tmp_path / "out") == all_but_manifest(prepared)
    assert Shards.open(tmp_path / "out").n_tokens == Shards.open(prepared).n_tokens


def test_a_task_that_runs_again_rewrites_its_stream(corpus, prepared, tmp_path):
    step = writer(tmp_path / "out", prepared)
    execute([ReadText(str(corpus)), step], tmp_path / "logs" / "first", tasks=3)
    execute([ReadText(str(corpus)), step], tmp_path / "logs" / "second", tasks=3)
    execute([FinishShards(step)], tmp_path / "logs" / "finish")
    assert all_but_manifest(tmp_path / "out") == all_but_manifest(prepared)


def test_filters_can_be_placed_between_reading_and_writing(corpus, prepared, tmp_path):
    step = writer(tmp_path / "out", prepared)
    steps = [ReadText(str(corpus)), LambdaFilter(lambda document: document.text.startswith("The")), step]
    execute(steps, tmp_path / "logs" / "encode")
    execute([FinishShards(step)], tmp_path / "logs" / "finish")
    kept, everything = Shards.open(tmp_path / "out"), Shards.open(prepared)
    assert 0 < kept.n_documents < everything.n_documents
    the = kept.tokenizer().token_to_id("the")
    assert all(kept.document(index).tokens[0] == the for index in range(kept.n_documents))


def test_the_target_of_a_link_is_written_and_not_the_link(corpus, prepared, tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "out").symlink_to("large")
    step = writer(tmp_path / "out", prepared)
    for rank in range(3):
        list(step.run(ReadText(str(corpus)).run(None, rank, 3), rank, 3))
    list(FinishShards(step).run())
    assert (tmp_path / "out").is_symlink()
    assert all_but_manifest(tmp_path / "large") == all_but_manifest(prepared)


def test_the_example_runs(corpus, prepared, tmp_path, monkeypatch):
    example = Path(__file__).parents[2] / "examples" / "prepare_datatrove.py"
    monkeypatch.setattr("sys.argv", ["example", str(corpus), str(tmp_path / "out"), str(prepared), "--tasks", "1"])
    runpy.run_path(str(example), run_name="__main__")
    assert Shards.open(tmp_path / "out").n_tokens > 1000


def test_finishing_a_folder_with_a_missing_task_is_an_input_error(corpus, prepared, tmp_path):
    step = writer(tmp_path / "out", prepared)
    list(step.run(ReadText(str(corpus)).run(None, 0, 3), 0, 3))
    with pytest.raises(InputError, match=r"stream 1 in .* is not finished"):
        list(FinishShards(step).run())


def test_streams_of_different_pipelines_cannot_be_combined(corpus, prepared, tmp_path):
    step = writer(tmp_path / "out", prepared)
    for rank, tasks in ((0, 2), (1, 3)):
        list(step.run(ReadText(str(corpus)).run(None, rank, tasks), rank, tasks))
    with pytest.raises(InputError, match=r"stream 1 in .* is not one of 2 streams"):
        list(FinishShards(step).run())
