"""Shell completion: candidates, and the script in a real shell."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lightbert import cli
from lightbert.commands import COMMANDS
from lightbert.commands.completion import candidates


def test_the_last_word_is_completed():
    for line, expected in [
        ("lightbert ev", ["evaluate"]),
        ("lightbert nosuch x", []),
        ("lightbert pretrain tiny-", ["tiny-mlm", "tiny-rtd"]),
        ("lightbert finetune class", ["classify"]),
        ("lightbert recipes tiny-d", ["tiny-distill"]),
        ("lightbert finetune classify data.te", ["data.test=", "data.text=", "data.text_b="]),
        ("lightbert finetune classify data.text=body data.te", ["data.test=", "data.text_b="]),
        ("lightbert finetune classify data.kind=r", ["data.kind=regress"]),
        ("lightbert finetune classify double=", ["double=true", "double=false"]),
        ("lightbert finetune classify lr=", []),
        ("lightbert finetune classify data.train='my fi", []),
        ("lightbert embed model --po", ["--pool"]),
        ("lightbert embed model --pool ", ["auto", "mean", "cls", "max"]),
        ("lightbert embed model ", []),
    ]:
        assert candidates("zsh", line) == expected


def test_the_first_word_is_a_command():
    assert candidates("bash", "lightbert ") == [*COMMANDS, "--help", "--version"]


def test_every_command_completes_its_options():
    for verb in COMMANDS:
        assert {"--help", "--json"} <= {*candidates("bash", f"lightbert {verb} --")}


def test_bash_gets_the_part_after_the_equals_sign():
    assert candidates("bash", "lightbert finetune classify data.kind=c") == ["classify"]


def test_the_candidates_are_printed_one_per_line(capsys):
    assert cli.main(["--complete", "bash", "lightbert pretrain tiny-"]) == 0
    assert capsys.readouterr().out == "tiny-mlm\ntiny-rtd\n"


def test_an_unknown_shell_is_an_error(capsys):
    assert cli.main(["--completion", "tcsh"]) == 1
    assert "unknown shell 'tcsh'; choose from bash, zsh" in capsys.readouterr().err
    assert cli.main(["--completion"]) == 1


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `lightbert` is this package."""
    program = tmp_path / "bin" / "lightbert"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lightbert "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash not installed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [("lightbert pretrain tiny-r", "tiny-rtd"), ("lightbert finetune classify data.kind=cl", "classify")],
)
def test_bash_completes_with_the_script(path, line, expected):
    program = f"""
        eval "$(lightbert --completion bash)"
        complete -p lightbert >/dev/null || exit 1
        compopt() {{ true; }}
        COMP_LINE='{line}' COMP_POINT={len(line)}
        _lightbert
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", program], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [expected]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh not installed")
def test_zsh_parses_the_script(path):
    program = 'compdef() { print $2; }; eval "$(lightbert --completion zsh)"'
    done = subprocess.run(
        ["zsh", "-fc", program], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "lightbert\n"
