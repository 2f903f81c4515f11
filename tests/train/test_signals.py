"""The first signal sets a flag, the second exits."""

import os
import signal
import subprocess
import sys

import pytest

from lightbert.train.signals import Interruption, catch_signals

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_sets_the_flag(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with catch_signals() as caught:
        assert not caught
        os.kill(os.getpid(), number)
        assert caught
        assert caught.signal == number
    assert capfd.readouterr().err == "interrupted: saving a checkpoint; a second signal exits at once\n"


def test_the_previous_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with catch_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before


def test_without_a_signal_the_flag_is_not_set() -> None:
    assert not Interruption()


SECOND = """
import os, signal
from lightbert.train.signals import catch_signals
with catch_signals():
    try:
        os.kill(os.getpid(), signal.{first})
        os.kill(os.getpid(), signal.{second})
    finally:
        print("cleaned up")
"""


@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_the_second_signal_exits_at_once(first: str, second: str) -> None:
    script = SECOND.format(first=first, second=second)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.Signals[second]
    assert done.stdout == ""
