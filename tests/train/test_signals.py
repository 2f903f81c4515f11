"""The first signal sets a flag, the second exits."""

import os
import signal
import subprocess
import sys

import pytest

from lightbert.train.signals import Interruption, StoppedEarlyError, catch_signals

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_sets_the_flag(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with catch_signals() as caught, caught.deferred():
        assert not caught
        os.kill(os.getpid(), number)
        assert caught
        assert caught.signal == number
    assert capfd.readouterr().err == "interrupted: saving a checkpoint; a second signal exits at once\n"


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_with_nothing_to_save_stops_at_once(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with catch_signals() as caught:
        with caught.deferred():
            pass
        with pytest.raises(StoppedEarlyError):
            os.kill(os.getpid(), number)
    assert capfd.readouterr().err == "interrupted; run the same command again to continue\n"


def test_a_signal_after_the_reader_of_the_messages_has_left_sets_the_flag() -> None:
    read, write = os.pipe()
    os.close(read)
    before = os.dup(2)
    os.dup2(write, 2)
    try:
        with catch_signals() as caught, caught.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            assert caught
    finally:
        os.dup2(before, 2)
        for descriptor in (before, write):
            os.close(descriptor)


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
with catch_signals() as caught, caught.deferred():
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
