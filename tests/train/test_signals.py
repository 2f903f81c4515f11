"""The first signal asks, the second ends the process."""

import os
import signal
import subprocess
import sys

import pytest

from lightbert.train.signals import Interruption, catch_signals

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_remembered(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with catch_signals() as caught:
        assert not caught
        os.kill(os.getpid(), number)
        assert caught
        assert caught.signal == number
    assert capfd.readouterr().err == "interrupted: saving; a second signal stops at once\n"


def test_the_handlers_of_before_are_put_back() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with catch_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before


def test_nothing_is_caught_where_nobody_signals() -> None:
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
def test_the_second_ends_the_process_at_once(first: str, second: str) -> None:
    script = SECOND.format(first=first, second=second)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.Signals[second]
    assert done.stdout == ""
