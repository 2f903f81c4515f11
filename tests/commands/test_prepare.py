"""`lightbert prepare`: the report as text and JSON, and resuming."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from lightbert import cli
from lightbert.commands.prepare import Config, run
from lightbert.data.shards import Shards
from lightbert.errors import InputError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 300)


def test_the_report_counts_the_content_of_the_folder(corpus: Path, tmp_path: Path) -> None:
    report = run(Config((str(corpus),), tmp_path / "out", vocab_size=120, held_out=0.1, workers=1))
    shards = Shards.open(tmp_path / "out")
    counts = report.content
    assert (counts["train"]["documents"], counts["train"]["tokens"]) == (shards.n_documents, shards.n_tokens)
    assert counts["train"]["documents"] + counts["held_out"]["documents"] == 300
    assert counts["vocab"] == 120
    assert counts["bytes_on_disk"] == sum(path.stat().st_size for path in (tmp_path / "out").glob("[!m]*"))


def test_the_json_is_one_object_with_metrics(corpus: Path, tmp_path: Path, capsys) -> None:
    arguments = [
        "prepare",
        str(corpus),
        "--out",
        str(tmp_path / "out"),
        "--vocab-size",
        "120",
        "--workers",
        "1",
        "--json",
    ]
    assert cli.main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["metrics"]["tokens"] == first["train"]["tokens"] + first["held_out"]["tokens"]
    metrics = first["metrics"]
    assert metrics["tokens_per_second"] == pytest.approx(metrics["tokens_encoded"] / metrics["seconds"])
    assert 0 < metrics["tokenizer_seconds"] + metrics["encoding_seconds"] < metrics["seconds"]
    assert cli.main(arguments) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["tokens_encoded"], second["train"]) == (0, first["train"])


def test_the_printed_report_is_a_table(corpus: Path, tmp_path: Path) -> None:
    config = Config((str(corpus),), tmp_path / "out", vocab_size=120, workers=1)
    console = Console(width=160)
    with console.capture() as captured:
        console.print(run(config), run(config))
    assert "held-out" in captured.get()
    assert "tokens/s" in captured.get()
    assert "already prepared" in captured.get()


def test_unigram_has_the_vocabulary_size_of_the_composite_paper_by_default(corpus: Path, tmp_path: Path) -> None:
    run(Config((str(corpus),), tmp_path / "out", model="unigram", workers=1))
    assert Shards(tmp_path / "out").manifest.settings["vocab_size"] == 30004


def test_an_empty_tokenizer_is_not_the_current_folder(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--tokenizer must not be empty; give a file, a folder or a bundled model"):
        run(Config((str(corpus),), tmp_path / "out", tokenizer=""))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "wordpeice"], "unknown model 'wordpeice'; did you mean 'wordpiece'?"),
        (["--held-out", "2"], "held_out must be in [0, 1), got 2.0"),
        (["--tokenizer", "nowhere.json"], "tokenizer 'nowhere.json' not found"),
    ],
)
def test_bad_input_is_one_sentence(corpus: Path, tmp_path: Path, capsys, arguments: list[str], sentence: str) -> None:
    assert cli.main(["prepare", str(corpus), "--out", str(tmp_path / "out"), *arguments]) == 1
    assert sentence in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def in_a_process(corpus: Path, out: Path, workers: int) -> list[str]:
    options = ["--vocab-size", "200", "--shard-characters", "50000", "--workers", str(workers)]
    return [sys.executable, "-m", "lightbert", "prepare", str(corpus), "--out", str(out), *options]


def kill_and_start_again(command: list[str], out: Path, is_time: Callable[[], bool]) -> None:
    while not out.exists():
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and not is_time():
            time.sleep(0.02)
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)


def write_corpus(path: Path, documents: int) -> Path:
    path.write_text("\n\n".join(f"Document {i} is short.\nIt has two lines, {i * i} words." for i in range(documents)))
    return path


def assert_same_files(one: Path, other: Path) -> None:
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


def test_a_killed_preparation_resumes_and_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "corpus.txt", 8_000), tmp_path / "killed"
    run(Config((str(corpus),), tmp_path / "whole", vocab_size=200, shard_characters=50_000, workers=1))
    killed = False

    def is_time() -> bool:
        nonlocal killed
        now = not killed and (tmp_path / "killed.partial" / "part-00000-00001.json").exists()
        killed = killed or now
        return now

    kill_and_start_again(in_a_process(corpus, out, workers=1), out, is_time)
    assert killed
    assert_same_files(tmp_path / "whole", out)


def test_the_files_of_a_preparation_that_was_killed_before_its_first_part_are_removed(tmp_path: Path) -> None:
    corpus, partial = write_corpus(tmp_path / "corpus.txt", 50), tmp_path / "out.partial"
    assert cli.main(["prepare", str(corpus), "--out", str(tmp_path / "whole"), "--vocab-size", "200"]) == 0
    partial.mkdir()
    (partial / ".lightbert-0-x").mkdir()
    (partial / ".lightbert-0-x" / "lightbert.json").write_text('{"writer": "lightbert", "pid": 99999999}')
    (partial / ".lightbert-0-x" / "sample").write_text("text")
    (partial / ".lightbert.lock").touch()
    assert cli.main(["prepare", str(corpus), "--out", str(tmp_path / "out"), "--vocab-size", "200"]) == 0
    assert_same_files(tmp_path / "whole", tmp_path / "out")


@pytest.mark.prove
def test_fifty_kills_at_random_moments_give_the_same_bytes(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "corpus.txt", 100_000), tmp_path / "killed"
    subprocess.run(in_a_process(corpus, tmp_path / "whole", workers=2), check=True, capture_output=True)
    choose, kills = random.Random(0), 0
    deadline = time.monotonic()

    def is_time() -> bool:
        nonlocal kills, deadline
        if kills == 50 or time.monotonic() < deadline:
            return False
        kills += 1
        deadline = time.monotonic() + choose.uniform(0.0, 4.0)
        return True

    kill_and_start_again(in_a_process(corpus, out, workers=2), out, is_time)
    print(f"{kills} kills")
    assert_same_files(tmp_path / "whole", out)


@pytest.mark.parametrize("size", ["0", "-5", "63"])
def test_a_vocabulary_that_is_too_small_is_an_error(tmp_path, capsys, size):
    (tmp_path / "corpus.txt").write_text("the cat sat on the mat\n")
    assert cli.main(["prepare", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "o"), "--vocab-size", size]) == 1
    message = capsys.readouterr().err
    assert f"vocab_size must be >= 64, got {size}" in message
    assert "reading" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
