"""Standard streams that are left by their reader or limited to a small character set never stop a command."""

import json
import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from lightbert.cli import set_up_streams
set_up_streams()
{body}
"""


def run(body: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", PROGRAM.format(body=body)], check=False, **options)


def test_messages_that_nobody_reads_are_lost_and_nothing_else() -> None:
    read, write = os.pipe()
    os.close(read)
    body = "for _ in range(10): print('x' * 100_000, file=sys.stderr, flush=True)\nprint('done')"
    done = run(body, stdout=subprocess.PIPE, stderr=write)
    os.close(write)
    assert (done.returncode, done.stdout) == (0, b"done\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_outside_of_the_character_set_are_escaped_as_in_json(encoding: str) -> None:
    text = "é … 😀 \ud83d"
    body = f"import json\nprint(json.dumps({text!a}, ensure_ascii=False))"
    done = run(body, stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.returncode == 0
    assert json.loads(done.stdout.decode(encoding)) == text


REPORT = """
import time
from lightbert.cli import main
from lightbert.commands.report import show
class Report:
    def to_json(self): return dict(text="x" * 100_000)
    def __rich__(self): return "x" * 100_000
sys.stdin.readline()
show(Report(), json={json})
sys.exit(75)
"""


@pytest.mark.parametrize("json", [True, False])
def test_the_exit_code_is_kept_when_nobody_reads_the_report(json: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=REPORT.format(json=json))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    _, errors = process.communicate(b"go\n")
    assert (process.returncode, errors) == (75, b"")


def test_ctrl_c_at_the_start_prints_no_traceback() -> None:
    # The command line is being imported when the signal arrives.
    program = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from lightbert.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
