"""A command's options are the fields of its Config."""

import inspect
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

import lightbert
from lightbert.cli import main
from lightbert.commands import bench, demo, evaluate, export, prepare
from lightbert.commands.options import CommaSeparated, options, options_in_errors
from lightbert.errors import InputError


@dataclass(frozen=True)
class Config:
    source: Annotated[str, typer.Argument(help="What to read.")]
    texts: Annotated[tuple[str, ...], typer.Argument(help="Several.")] = ()
    mode: Annotated[Literal["fast", "exact"], typer.Option(help="How.")] = "fast"
    names: Annotated[tuple[str, ...], typer.Option(help="Names."), CommaSeparated()] = ()
    out: Annotated[Path | None, typer.Option(help="Where to.")] = None
    force: Annotated[bool, typer.Option("--force", help="Really.")] = False
    count: Annotated[int, typer.Option(help="How many.")] = 3


def run(*arguments: str) -> tuple[Config, bool]:
    seen = []

    @options(Config)
    def command(config: Config, json: bool) -> None:
        """Say what it does."""
        seen.append((config, json))

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    with typer.main.get_command(app).make_context("x", list(arguments)) as context:
        context.command.invoke(context)
    return seen[0]


def test_fields_that_are_not_given_keep_their_defaults():
    assert run("a") == (Config("a"), False)


def test_every_field_is_an_option_of_its_type():
    config, json = run(
        "a", "b", "c", "--mode", "exact", "--names", "x, y", "--out", "o", "--force", "--count", "5", "--json"
    )
    assert config == Config("a", ("b", "c"), "exact", ("x", "y"), Path("o"), True, 5)
    assert json


def test_a_wrong_or_missing_value_is_an_error_of_the_command_line():
    for line in [["a", "--count", "many"], ["a", "--colour", "red"], []]:
        with pytest.raises(typer.BadParameter.__base__):
            run(*line)


def test_the_error_for_an_unknown_choice_suggests_the_nearest_one():
    with pytest.raises(InputError, match=r"unknown mode 'exat'; did you mean 'exact'"):
        run("a", "--mode", "exat")


def test_the_help_text_is_the_docstring():
    @options(Config)
    def command(config: Config, json: bool) -> None:
        """Say what it does."""

    assert inspect.getdoc(command) == "Say what it does."
    assert list(inspect.signature(command).parameters) == [*Config.__dataclass_fields__, "json"]


def test_the_config_checks_what_the_types_of_typer_do_not():
    @dataclass(frozen=True)
    class Checked:
        size: Annotated[int, typer.Option(help="Size.")] = 1

        def __post_init__(self) -> None:
            if self.size < 1:
                raise InputError(f"size must be >= 1, got {self.size}")

    @options(Checked)
    def command(config: Checked, json: bool) -> None:
        """Do nothing."""

    with pytest.raises(InputError, match="size must be >= 1, got 0"):
        command(size=0)


def test_errors_of_commands_name_options_instead_of_keys():
    for sentence, expected in [
        ("set data.text_b=COLUMN", "set --text-b COLUMN"),
        ("data.separator must be one character", "--separator must be one character"),
        ("skip such rows with data.bad_rows=skip", "skip such rows with --bad-rows skip"),
        ("'data.text' and my/data.label have no column", "'data.text' and my/data.label have no column"),
        ("data.csv not found; data.train is not set", "data.csv not found; data.train is not set"),
    ]:
        with pytest.raises(InputError) as error, options_in_errors():
            raise InputError(sentence)
        assert str(error.value) == expected


VALUES = {
    "str": "x",
    "int": 7,
    "bool": True,
    "Path": Path("x"),
    "tuple": ("x",),
}


def changed(config):
    """For each option with a default, the config with another value."""
    for field in fields(config):
        if field.default is not MISSING:
            kind = next(name for name in VALUES if name in str(field.type) or name in type(field.default).__name__)
            yield field.name, replace(config, **{field.name: VALUES[kind]})


@pytest.mark.parametrize(
    ("config", "used", "reason"),
    [
        (
            evaluate.Config(task="squad2", data="dev.json", predictions=Path("p.json")),
            {"task", "data", "predictions", "na_probs", "submission"},
            "with --predictions and --task squad2",
        ),
        (
            evaluate.Config(task="rte", data="glue", predictions=Path("RTE.tsv")),
            {"task", "data", "predictions", "split", "bad_rows", "submission"},
            "with --predictions and --task rte",
        ),
        (
            evaluate.Config(predictions=Path("p"), submission=Path("x.zip")),
            {"predictions", "submission"},
            "--submission",
        ),
        (
            evaluate.Config("model", task="pairs", data="pairs.csv"),
            {"model", "task", "data", "split", "bad_rows", "batch", "device", "out", "predictions", "submission"}
            | {"text", "text_b", "separator", "header", "encoding"},
            "with --task pairs",
        ),
        (
            evaluate.Config("model", task="retrieval", data="beir"),
            {"model", "task", "data", "split", "bad_rows", "batch", "device", "out", "predictions", "submission"},
            "with --task retrieval",
        ),
    ],
)
def test_evaluate_refuses_every_option_that_it_would_not_use(config, used, reason):
    for name, other in changed(config):
        if name not in used:
            option = "MODEL" if name == "model" else f"--{name.replace('_', '-')}"
            with pytest.raises(InputError, match=f"^{option} can't be used .*{reason}; leave it out"):
                evaluate.run(other)


def test_options_that_need_another_option_are_refused_without_it():
    for run, config, sentence in [
        (evaluate.run, evaluate.Config("m", na_probs=Path("x")), "--na-probs can't be used without --predictions"),
        (evaluate.run, evaluate.Config("m", overwrite=True), "--overwrite can't be used without --out"),
        (bench.run, bench.Config("latency", clients=("1",)), "--clients can't be used with the benchmark 'latency'"),
        (bench.run, bench.Config("serving", length=7), "--length can't be used with the benchmark 'serving'"),
        (export.run, export.Config("m", Path("x"), split="test"), "--split can't be used without --data"),
        (demo.run, demo.Config(zoo=True, again=True), "--again can't be used with --zoo"),
        *(
            (prepare.run, prepare.Config(("x",), Path("y"), tokenizer="t", **more), "can't be used with --tokenizer")
            for more in ({"vocab_size": 7}, {"model": "unigram"}, {"cased": True})
        ),
    ]:
        with pytest.raises(InputError, match=sentence):
            run(config)


def test_predict_refuses_options_of_files_for_texts(tmp_path, capsys):
    for option, value in (("--text", "body"), ("--separator", ";"), ("--bad-rows", "skip")):
        assert main(["predict", str(tmp_path), "a text", option, value]) == 1
        assert f"{option} can't be used without --file or -; leave it out" in capsys.readouterr().err


def test_finetune_refuses_a_test_file_that_it_would_not_read(tmp_path):
    with pytest.raises(InputError, match=r"data.test is not used in fine-tuning, got 'x.csv'; leave it out"):
        lightbert.finetune("classify", data={"train": "a.csv", "test": "x.csv"}, out=tmp_path / "run")
