import io
import re
import subprocess
import sys
import time

import pytest

from lightbert import progress as progress_module
from lightbert.progress import progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress_module, "_clock", clock)
    return clock


def test_without_a_terminal_a_line_appears_every_ten_seconds_and_at_the_end(clock, capsys):
    with progress("tokenizing", total=1500, unit="tokens") as bar:
        for _ in range(15):
            clock.now += 1.5
            bar.advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "tokenizing: 700/1,500 tokens, 66.67 tokens/s, 0:00:12 left",
        "tokenizing: 1,400/1,500 tokens, 66.67 tokens/s, 0:00:02 left",
        "tokenizing: 1,500/1,500 tokens, 66.67 tokens/s, 0:00:22 taken",
    ]


def test_notes_are_shown_after_the_count_and_can_be_updated(clock, capsys):
    with progress("training", total=2, unit="steps") as bar:
        bar.note(loss=3.14159, phase="warm")
        bar.note(loss=2.71828)
        clock.now = 1.0
        bar.advance()
    assert capsys.readouterr().err == "training: 1/2 steps, 1.00 steps/s, 0:00:01 left, loss 2.718, phase warm\n"


def test_progress_without_a_total_or_unit_shows_the_count(clock, capsys):
    with progress("reading") as bar:
        clock.now = 2.0
        bar.advance(1000)
    assert capsys.readouterr().err == "reading: 1,000, 500/s, 0:00:02 taken\n"


def test_the_total_can_be_set_later(clock, capsys):
    with progress("training", unit="steps") as bar:
        clock.now = 10.0
        bar.advance(5)
        bar.total = 20
        clock.now = 20.0
        bar.advance(5)
    assert capsys.readouterr().err.splitlines() == [
        "training: 5 steps, 0.50 steps/s, 0:00:10 taken",
        "training: 10/20 steps, 0.50 steps/s, 0:00:20 left",
    ]


def test_the_rate_of_a_resumed_run_excludes_earlier_work(clock, capsys):
    with progress("training", total=120, unit="steps", done=100) as bar:
        clock.now = 10.0
        bar.advance(10)
    assert capsys.readouterr().err.splitlines()[-1] == "training: 110/120 steps, 1.00 steps/s, 0:00:10 left"


def test_a_run_of_absurd_length_shows_that_it_takes_a_century(clock, capsys):
    with progress("training", total=2**53, unit="steps") as bar:
        clock.now = 10.0
        bar.advance(10)
    assert capsys.readouterr().err.splitlines()[-1].endswith("1.00 steps/s, more than 100 years left")


def test_a_run_with_nothing_left_to_do_shows_no_rate(clock, capsys):
    with progress("training", total=100, unit="steps", done=100) as bar:
        clock.now = 10.0
        bar.note(loss=1.5)
    assert capsys.readouterr().err.splitlines()[-1] == "training: 100/100 steps, loss 1.5"


def test_a_bar_is_redrawn_while_nothing_advances(clock, capsys):
    with progress("merging", total=2, unit="passes") as bar:
        bar.advance(2)
        clock.now = 10.0
        bar.advance(0)
        assert capsys.readouterr().err == "merging: 2/2 passes, 0.20 passes/s, 0:00:10 taken\n"


def test_a_bar_is_redrawn_from_a_thread_while_the_body_computes(clock, capsys):
    with progress("compiling", total=2, unit="steps") as bar:
        bar.advance(2)
        clock.now = 10.0
        with bar.redrawn():
            wait_until(lambda: "compiling: 2/2 steps, 0.20 steps/s, 0:00:10 taken\n" in capsys.readouterr().err)


def wait_until(reached):
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_line_that_was_due_at_the_end_is_printed_once(clock, capsys):
    with progress("running", total=1, unit="models") as bar:
        clock.now = 10.0
        bar.advance()
    assert capsys.readouterr().err == "running: 1/1 models, 0.10 models/s, 0:00:10 taken\n"


def test_a_line_is_not_repeated_at_the_end_if_only_the_time_has_changed(clock, capsys):
    with progress("running", total=1, unit="models") as bar:
        clock.now = 10.0
        bar.advance()
        bar.note(loss=1.0)
        clock.now = 19.0
    assert capsys.readouterr().err.splitlines() == [
        "running: 1/1 models, 0.10 models/s, 0:00:10 taken",
        "running: 1/1 models, 0.05 models/s, 0:00:19 taken, loss 1",
    ]
    with progress("running", total=1, unit="models") as bar:
        clock.now = 30.0
        bar.advance()
        clock.now = 30.5
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_long_wait_at_the_end_is_in_the_last_line(clock, capsys):
    with progress("running", total=1, unit="models") as bar:
        clock.now = 10.0
        bar.advance()
        clock.now = 60.0
    assert capsys.readouterr().err.splitlines()[1:] == ["running: 1/1 models, 0.02 models/s, 0:01:00 taken"]


def test_an_interrupted_body_prints_its_last_progress(clock, capsys):
    def interrupted():
        with progress("tokenizing", total=10) as bar:
            bar.advance(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err.startswith("tokenizing: 3/10")


def test_a_terminal_shows_a_bar_with_the_same_status(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("tokenizing", total=10, unit="tokens") as bar:
        clock.now = 5.0
        bar.advance(10)
        bar.note(shard="[3]")
    words = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sys.stderr.getvalue())
    assert "tokenizing ━━━" in words
    assert "10/10 tokens, 2.00 tokens/s, 0:00:05 taken, shard [3]" in words


def test_rich_is_imported_only_for_a_terminal():
    program = (
        "import sys\nfrom lightbert.progress import progress\n"
        "with progress('x', total=1) as bar: bar.advance()\n"
        "sys.exit(int('rich' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
