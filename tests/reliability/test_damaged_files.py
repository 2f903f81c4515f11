"""Every reader meets damaged files with one sentence: never a traceback, never silence where hashes exist."""

import json
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mutations import bytes_of, json_of
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lightbert import recipes
from lightbert.commands.recipes import verbs_for
from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.data.tables import Table, TableOptions
from lightbert.errors import InputError
from lightbert.interop.huggingface import write as write_huggingface
from lightbert.interop.load import load
from lightbert.models import PRESETS, build, folder
from lightbert.recipes.toml import to_toml
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.train.checkpoint import Checkpoint, load_newest, save
from lightbert.train.log import MetricsFile
from lightbert.train.run_folder import load_recipe
from parquet import write_parquet

Mutate = Callable[[bytes, random.Random], bytes]

COUNT = [pytest.param(40, id="few"), pytest.param(3000, id="many", marks=pytest.mark.prove)]


def attack(path: Path, mutate: Mutate, read: Callable[[], object], count: int) -> int:
    """Read the file after each mutation; return how many raised. Anything but an `InputError` fails the test."""
    whole, sentences = path.read_bytes(), list[str]()
    for number in range(count):
        choose = random.Random(f"{path.name} {number}")
        mutated = mutate(whole, choose)
        path.write_bytes(mutated)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read()
        except InputError as error:
            sentences.append(str(error))
        except Exception as error:
            raise AssertionError(f"mutation {number} of {path.name}: {error!r}") from error
    path.write_bytes(whole)
    assert [sentence for sentence in sentences if "\n" in sentence] == []
    return len(sentences)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    sizes = {"vocab": 13, "positions": 16, "narrow": 8, "width": 16, "depth": 1, "inner": 32}
    built = build(replace(PRESETS["convbert-tiny"], **sizes), heads={"classify": {"labels": 2}}, seed=0)
    built.tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(13)}, unk_token="w0"))
    built.labels, built.task = ("a", "b"), {"kind": "classify", "labels": ["a", "b"], "task": "own", "length": 16}
    folder.save(built, where / "ours")
    small = build(
        replace(PRESETS["bert-tiny"], vocab=13, positions=16, narrow=16, width=16, depth=1, n_heads=2, inner=32)
    )
    small.tokenizer = built.tokenizer
    write_huggingface(small, where / "theirs")
    return where


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
@pytest.mark.parametrize("layout", ["ours", "theirs"])
@pytest.mark.parametrize(
    ("name", "mutate"), [("config.json", json_of), ("model.safetensors", bytes_of), ("tokenizer.json", json_of)]
)
def test_model_folders(model: Path, layout: str, name: str, mutate: Mutate, count: int) -> None:
    # Many mutations leave a valid model, such as another number in the weights, which no file has a hash of.
    assert attack(model / layout / name, mutate, lambda: load(str(model / layout)), count) > count // 10


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
@pytest.mark.parametrize("name", ["manifest.json", "facts.json", "weights.safetensors"])
def test_checkpoints(tmp_path: Path, name: str, count: int) -> None:
    import torch

    save(tmp_path, 3, Checkpoint({"weights": {"a": torch.arange(6.0)}}, {"step": 3}), keep=1)
    mutate = bytes_of if name.endswith(".safetensors") else json_of
    whole = (tmp_path / "step-3" / name).read_bytes()

    def different(content: bytes, choose: random.Random) -> bytes:
        mutated = mutate(content, choose)
        return mutated if mutated != whole else mutated + b"x"

    found = attack(tmp_path / "step-3" / name, different, lambda: load_newest(tmp_path), count)
    # The manifest may be written differently and mean the same; everything else is hashed.
    assert found == count or (name == "manifest.json" and found > 0.9 * count)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("prepared")
    words = random.Random(0).choices(["the", "cat", "sat", "on", "a", "mat"], k=600)
    (where / "a.txt").write_text("\n\n".join(" ".join(words[at : at + 6]) for at in range(0, 600, 6)))
    prepare(Settings(sources=(str(where / "a.txt"),), vocab_size=64, held_out=0.1), where / "data", workers=1)
    return where / "data"


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
def test_prepared_folders(prepared: Path, count: int) -> None:
    for path in sorted(prepared.iterdir()):
        whole = path.read_bytes()
        mutate = json_of if path.suffix == ".json" else bytes_of

        def different(content: bytes, choose: random.Random, mutate: Mutate = mutate, whole: bytes = whole) -> bytes:
            mutated = mutate(content, choose)
            return mutated if mutated != whole else mutated + b"x"

        assert attack(path, different, lambda: Shards.open(prepared), count) == count, path.name


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
def test_logs_and_recipes_of_a_run(tmp_path: Path, count: int) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"kind": "train", "step": step, "loss": 1.0}) + "\n" for step in range(1, 9)))
    attack(log, bytes_of, lambda: MetricsFile(log, 8).close(), count)
    (tmp_path / "recipe.json").write_text(json.dumps({"seed": 1, "model": "x", "optimizer": {"clip": 1.0}}))
    (tmp_path / "final").mkdir()
    attack(tmp_path / "recipe.json", json_of, lambda: load_recipe(tmp_path), count)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
def test_recipe_files(tmp_path: Path, count: int) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('# Mine.\nparent = "_nano"\n' + to_toml(recipes.read("tiny-distill")))
    attack(path, bytes_of, lambda: verbs_for(recipes.read(path)), count)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", COUNT)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx"])
@pytest.mark.parametrize("bad_rows", ["error", "skip"])
def test_tables(tmp_path: Path, suffix: str, bad_rows: str, count: int) -> None:
    path = tmp_path / f"a{suffix}"
    rows = [("a good film", "good"), ('bad, "very" bad', "bad"), ("ünïcode 😀", "good"), ("two\nlines", "bad")] * 5
    if suffix == ".parquet":
        write_parquet(path, {"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    elif suffix == ".xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in (("text", "label"), *rows):
            book.active.append(row)
        book.save(path)
    elif suffix == ".json":
        path.write_text(json.dumps([{"text": text, "label": label} for text, label in rows]))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            tab = suffix == ".tsv"
            writer = csv.writer(file, delimiter="\t" if tab else ",", quoting=csv.QUOTE_NONE if tab else csv.QUOTE_ALL)
            writer.writerow(("text", "label"))
            writer.writerows((text.replace("\n", " ").replace('"', "") if tab else text, label) for text, label in rows)
    mutate = json_of if suffix == ".json" else bytes_of
    attack(
        path,
        mutate,
        lambda: list(Table(path, {"text": "text", "label": "label"}, TableOptions(bad_rows=bad_rows))),
        count,
    )
    attack(path, mutate, lambda: own_task(Files(train=str(path), bad_rows=bad_rows)).examples("train"), count // 4)
