import errno
import json
import subprocess
import sys
import types
from typing import Annotated

import pytest
import typer
from rich.console import Group
from rich.text import Text

import lightbert
from lightbert import cli
from lightbert.commands import COMMANDS
from lightbert.commands.report import AsJson, show
from lightbert.errors import InputError


class Greeting:
    def to_json(self):
        return {"greeting": "grüße"}

    def __rich__(self):
        return Group("grüße", "model: [x]/y[/y] :smile:", Text("bold", "bold"))


OUTCOMES = {
    "input": InputError("unknown preset 'x'; did you mean 'y'?"),
    "missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "a.toml"),
    "bare": OSError("the disk is full"),
    "interrupt": KeyboardInterrupt(),
    "exit": typer.Exit(3),
    "bug": RuntimeError("a bug"),
}


def command(
    outcome: Annotated[str, typer.Argument(help="What happens.")],
    length: Annotated[int, typer.Option(help="How long it takes.")] = 1,
    json: AsJson = False,
) -> None:
    """Greet or fail."""
    assert length > 0
    if outcome in OUTCOMES:
        raise OUTCOMES[outcome]
    show(Greeting(), json=json)


@pytest.fixture(autouse=True)
def _a_verb_named_greet(monkeypatch):
    module = types.ModuleType("greet")
    module.command = command
    monkeypatch.setitem(sys.modules, "greet", module)
    monkeypatch.setitem(COMMANDS, "greet", ("greet", "greet or fail"))


def test_help_lists_every_command_with_its_summary(capsys):
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(verb in output and summary in output for verb, (_, summary) in COMMANDS.items())


def test_no_arguments_print_the_help(capsys):
    assert cli.main([]) == 0
    assert "Usage: lightbert COMMAND" in capsys.readouterr().out


def test_the_help_of_a_command_has_no_completion_options(capsys):
    assert cli.main(["greet", "--help"]) == 0
    output = capsys.readouterr().out
    assert "Usage: lightbert greet" in output
    assert "How long it takes." in output
    assert "completion" not in output


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lightbert {lightbert.__version__}\n"


def test_a_report_is_printed_as_text_or_as_one_json_object(capsys):
    assert cli.main(["greet", "world"]) == 0
    # Square brackets and colons in a path are not markup.
    assert capsys.readouterr().out == "grüße\nmodel: [x]/y[/y] :smile:\nbold\n"
    assert cli.main(["greet", "world", "--json"]) == 0
    assert capsys.readouterr().out == '{\n  "greeting": "grüße"\n}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["gret"], 1, "unknown command 'gret'; did you mean 'greet'?"),
        (["--versio"], 1, "unknown option '--versio'; did you mean '--version'?"),
        (["greet", "x", "--jsn"], 2, "unknown option '--jsn'; did you mean '--json'?"),
        (["greet"], 2, "Missing argument"),
        (["greet", "x", "--length", "long"], 2, "Invalid value for '--length'"),
        (["greet", "input"], 1, "unknown preset 'x'; did you mean 'y'?"),
        (["greet", "missing"], 1, "No such file or directory: 'a.toml'"),
        (["greet", "bare"], 1, "the disk is full"),
        (["greet", "interrupt"], 130, "interrupted"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr(capsys, arguments, code, sentence):
    assert cli.main(arguments) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lightbert: ")
    assert sentence in output.err
    assert output.err.count("\n") == 1


def test_numbers_that_are_not_finite_are_null_in_json(capsys, monkeypatch):
    numbers = {"metrics": {"pearson": float("nan")}, "runs": [1.0, float("inf")]}
    monkeypatch.setattr(Greeting, "to_json", lambda self: numbers)
    assert cli.main(["greet", "world", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"metrics": {"pearson": None}, "runs": [1.0, None]}


def test_a_command_chooses_its_exit_code():
    assert cli.main(["greet", "exit"]) == 3


def test_a_bug_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["greet", "bug"])


def test_a_broken_pipe_prints_no_traceback():
    program = "import sys; from lightbert.cli import main; sys.stdin.readline(); sys.exit(main(['--help']))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert errors == b""


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "lightbert", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("lightbert ")
