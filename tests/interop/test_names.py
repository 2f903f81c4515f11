"""Model names have the same meaning in Python, in every command and in every recipe."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lightbert
from extras import needs_plots
from lightbert import bundled, cli
from lightbert.errors import InputError
from lightbert.interop import load as names
from lightbert.interop.load import ModelFolder, Preset, Tf1Checkpoint, describe, find, load
from lightbert.models import PRESETS, build, folder
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.starting_model import starting_model as finetuned_from
from lightbert.train.pretraining import load_teacher, starting_config, starting_model
from lightbert.train.settings import DistillRecipe, Recipe

TINY = replace(PRESETS["convbert-tiny"], vocab=60, depth=1, width=16, narrow=8, inner=32)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """A fake Hub with the model ours/tiny that records its requests."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked, cache = [], tmp_path_factory.mktemp("cache")
    folder.save(build(TINY), cache / "snapshot")

    def snapshot_download(repo_id: str, **options: object) -> str:
        asked.append({"repo_id": repo_id, **options})
        if repo_id != "ours/tiny":
            raise OSError("Got: ConnectError: no network\nPlease check your internet connection.")
        return str(cache / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def saved(path: str) -> Path:
    folder.save(build(TINY), path)
    return Path(path)


def test_a_preset_is_found_by_its_name():
    assert find("convbert-small") == Preset("convbert-small")
    assert describe(find("convbert-small")).config == PRESETS["convbert-small"]


def test_a_folder_is_found_by_any_form_of_its_path(here):
    saved("model")
    for name in ("model", "./model", str(here / "model"), Path("model")):
        assert find(name) == ModelFolder(Path(name), str(name))
        assert load(name).config == TINY


def test_a_preset_takes_precedence_over_a_folder_of_that_name():
    saved("convbert-small")
    with pytest.warns(UserWarning, match=r"^'convbert-small' is the preset; use './convbert-small' for the folder"):
        assert find("convbert-small") == Preset("convbert-small")
    for path in ("./convbert-small", Path("convbert-small"), Path("convbert-small").resolve()):
        assert load(path).config == TINY


def test_a_tensorflow_checkpoint_is_found_by_its_prefix():
    Path("model.ckpt.index").touch()
    assert find("model.ckpt") == Tf1Checkpoint(Path("model.ckpt"))


def test_a_bundled_model_is_found_by_its_name(here, monkeypatch):
    monkeypatch.setattr(bundled, "FOLDER", here / "shipped")
    saved("shipped/convbert-small-en")
    assert lightbert.load("convbert-small-en").config == TINY
    saved("convbert-small-en")
    with pytest.warns(UserWarning, match=r"'convbert-small-en' is the bundled model; use './convbert-small-en'"):
        assert find("convbert-small-en").path == here / "shipped" / "convbert-small-en"
    with pytest.raises(InputError, match="unknown preset 'convbert-smal-en'; did you mean 'convbert-small-en'"):
        find("convbert-smal-en")


def test_bundled_models_are_those_of_the_package():
    assert Path(lightbert.__file__).parent / "bundled" == bundled.FOLDER


def test_a_model_on_the_hub_is_downloaded(hub):
    assert lightbert.load("ours/tiny").config == TINY
    lightbert.load("ours/tiny@v1.0")
    assert [(each["repo_id"], each["revision"]) for each in hub] == [("ours/tiny", None), ("ours/tiny", "v1.0")]
    assert not any(pattern.endswith(".bin") for each in hub for pattern in each["allow_patterns"])


def test_existing_paths_are_not_looked_up_on_the_hub(hub):
    saved("ours/tiny")
    find("ours/tiny")
    with pytest.raises(InputError, match="model 'ours/tinny' not found"):
        find("ours/tinny")
    with pytest.raises(InputError, match="model 'theirs/tiny' not found"):
        find(Path("theirs/tiny"))
    assert hub == []


def test_invalid_hub_ids_are_not_looked_up_on_the_hub(hub):
    for name in ("a/b/c", "/ours/tiny", "./ours/tiny", "ours/", "ours tiny/x", "", "nowhere"):
        with pytest.raises(InputError, match="not found; give a folder with config"):
            find(name)
        assert hub == []


def test_a_failed_download_is_a_one_line_error(hub):
    with pytest.raises(InputError) as caught:
        lightbert.load("ours/other")
    assert str(caught.value) == (
        "model folder 'ours/other' not found, and downloading it from the Hugging Face Hub failed: Got: "
        "ConnectError: no network"
    )


def test_the_error_for_a_missing_hub_model_names_it(monkeypatch):
    for error, message in (
        ("RepositoryNotFoundError", "no public model has that name"),
        ("RevisionNotFoundError", "it has no revision 'v9'"),
        ("GatedRepoError", "access requires a login: run `hf auth login`"),
    ):
        huggingface_hub = pytest.importorskip("huggingface_hub")
        kind = getattr(pytest.importorskip("huggingface_hub.errors"), error)

        def snapshot_download(*_: object, kind: type[Exception] = kind, **__: object) -> str:
            # Its constructor requires a response of its HTTP library.
            raise kind.__new__(kind, "not found")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        with pytest.raises(InputError, match=message):
            lightbert.load("ours/tiny@v9")


def test_the_error_without_huggingface_hub_suggests_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"requires huggingface_hub; install it with: pip install 'lightbert\[hf\]'"):
        lightbert.load("ours/tiny")


def run(*arguments: str) -> Callable[[str], None]:
    """Run a command line; raise its error instead of printing it."""

    def called(name: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_fail", _raise)
            cli.main([argument.replace("NAME", name) for argument in arguments])

    return called


def _raise(sentence: str, **_: int) -> int:
    raise InputError(sentence)


RUN = {"data": "shards", "out": "run", "steps": 1, "length": 16}
USERS: dict[str, Callable[[str], object]] = {
    "Python": lightbert.load,
    "info": run("info", "NAME"),
    "predict": run("predict", "NAME", "a text"),
    "evaluate": run("evaluate", "NAME", "--task", "rte", "--data", "."),
    "convert": run("convert", "NAME", "new", "--to", "lightbert"),
    "analyse": run("analyse", "attention", "NAME", "--teacher", "NAME", "--text", "w"),
    "finetune": lambda name: finetuned_from(FinetuneRecipe(model=name, task="rte", out="run")),
    "pretrain": lambda name: starting_model(Recipe(model=name, **RUN), 60, {"mlm": {}}, seed=0),
    "distill, student": lambda name: starting_config(DistillRecipe(model=name, teacher="x", strategy="pd", **RUN)),
    "distill, teacher": lambda name: load_teacher(DistillRecipe(model="bert-tiny", teacher=name, strategy="pd", **RUN)),
}


def error_of(user: str, name: str) -> str:
    with pytest.raises(InputError) as caught:
        USERS[user](name)
    return str(caught.value)


def test_every_entry_point_gives_the_same_error_for_an_unknown_model(hub, subtests):
    for user in USERS:
        for name, sentence in (
            ("runs/x", "'runs/x' is a run folder; its model is 'runs/x/final'"),
            (
                "bert-base-uncased",
                "model 'bert-base-uncased' not found; for the model on the Hugging Face Hub, write "
                "google-bert/bert-base-uncased",
            ),
            ("runs/y", "model 'runs/y' not found; give a folder with config.json, the name of a preset"),
            ("convbert-smal", "unknown preset 'convbert-smal'; did you mean 'convbert-small'?"),
            ("ours/other", "model folder 'ours/other' not found, and downloading it from the Hugging Face Hub failed"),
        ):
            with subtests.test(user=user, name=name):
                saved("runs/x/final")
                assert error_of(user, name).startswith(sentence)


def outcome(user: str, name: str) -> object:
    """Return the config of the named model, or the error."""
    try:
        given = USERS[user](name)
    except InputError as error:
        return str(error)
    return getattr(given, "config", given)


@pytest.mark.parametrize(
    "user", [pytest.param(user, marks=needs_plots) if user == "analyse" else user for user in USERS]
)
def test_every_entry_point_prefers_a_preset_over_a_folder_of_that_name(user, capsys):
    saved("bert-tiny")
    with pytest.warns(UserWarning, match="'bert-tiny' is the preset"):
        found = outcome(user, "bert-tiny")
    match user:
        case "info":
            assert f"{PRESETS['bert-tiny'].vocab}" in capsys.readouterr().out
        case "pretrain":
            assert found == replace(PRESETS["bert-tiny"], vocab=60)
        case "distill, student":
            assert found == PRESETS["bert-tiny"]
        case "finetune":
            assert str(found).startswith("the preset 'bert-tiny' requires tokenizer=PATH")
        case _:
            assert str(found).startswith("'bert-tiny' is a preset without weights")


def test_a_warning_about_a_name_is_one_line_on_the_command_line(monkeypatch):
    monkeypatch.setattr("warnings.formatwarning", cli.warnings.formatwarning)
    cli.main(["--version"])
    source = names.__file__
    assert cli.warnings.formatwarning("a note", UserWarning, source, 1) == "lightbert: a note\n"
    assert "else.py:1: UserWarning: a note" in cli.warnings.formatwarning("a note", UserWarning, "else.py", 1)
