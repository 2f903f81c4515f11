"""The server limits oneDNN's cache of operators before torch is imported; other commands don't."""

import os
import subprocess
import sys

import pytest

NAME, OTHER_NAME = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"

# Prints the environment variable, and ends, when torch is about to be imported.
UNTIL_TORCH = f"""
import os, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("{NAME}"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Stop())
from lightbert.cli import main
sys.exit(main(sys.argv[1:]) or 1)
"""


def capacity(*arguments, **environment):
    """The environment variable at the time when a command imports torch."""
    clean = {name: value for name, value in os.environ.items() if name not in (NAME, OTHER_NAME)}
    command = [sys.executable, "-c", UNTIL_TORCH, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "64"), ({NAME: "1024"}, "1024"), ({NAME: "0"}, "0"), ({OTHER_NAME: "256"}, "None")],
    ids=["default", "the users", "none", "the users, by the older name"],
)
def test_the_cache_of_the_server_is_small_unless_the_user_sets_it(environment, expected):
    assert capacity("serve", "convbert-small-en", "--port", "0", **environment) == expected


def test_other_commands_leave_the_cache_alone():
    for command in [["predict", "convbert-small-en", "text"], ["info", "convbert-small-en"]]:
        assert capacity(*command) == "None"


def test_the_environment_of_a_process_that_has_imported_torch_is_left_alone(monkeypatch):
    import torch  # noqa: F401

    from lightbert.serve.models import limit_operator_cache

    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.delenv(OTHER_NAME, raising=False)
    limit_operator_cache()
    assert NAME not in os.environ
