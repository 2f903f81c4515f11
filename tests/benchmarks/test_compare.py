"""Cases and versions timed alternately, on a CPU at tiny sizes; times themselves are not tested."""

from pathlib import Path

import pytest
import torch

import lightbert
from benchmarks.compare import Candidate, Difference, Settings, candidates, differences, main, measure, table
from benchmarks.training_cases import CASES, Case
from lightbert.errors import InputError

SOURCE = Path(lightbert.__file__).parents[2]
STEP, ENCODER = Case("convbert-tiny", 2, 16, rtd=True), Case("convbert-tiny", 2, 16)
FEW = Settings(rounds=3, calls=2, device="cpu")


def older_source(folder, cases):
    """A source folder with nothing but the module that has the cases."""
    package = folder / "src" / "lightbert" / "bench"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "training_cases.py").write_text(cases)
    return folder


OLDER = """
import time
from dataclasses import dataclass

@dataclass
class Case:
    model: str
    batch: int
    length: int
    rtd: bool
    overlap: bool
    packed: bool
    finetune: bool

def our_pass(case, device):
    print("this is no answer")
    return lambda: time.sleep(0.05)

whole_step = None
"""


def test_cases_are_timed_in_the_same_rounds():
    first, second = measure([Candidate(ENCODER), Candidate(STEP, SOURCE)], FEW)
    assert (first.name, second.name) == ("convbert-tiny 2×16", f"convbert-tiny 2×16, RTD step ({SOURCE})")
    assert (first.difference, first.ratio, first.ratio_error) == (0.0, 1.0, 0.0)
    assert min(first.milliseconds, second.milliseconds, second.ratio) > 0


def test_each_source_runs_its_own_package(tmp_path):
    older = older_source(tmp_path, OLDER)
    slow, again = measure([Candidate(ENCODER, older), Candidate(ENCODER, older)], FEW)
    assert min(slow.milliseconds, again.milliseconds) >= 50


@pytest.mark.parametrize("ends", ["before it is compiled", "in its second call"])
def test_a_process_that_ends_is_an_error_with_its_last_line(ends, tmp_path):
    work = "iter([]).__next__" if ends == "before it is compiled" else "iter([1, 2]).__next__"
    older = older_source(tmp_path, OLDER.replace("lambda: time.sleep(0.05)", work))
    with pytest.raises(InputError, match=r"convbert-tiny 2×16 \(.*\) ended: StopIteration"):
        measure([Candidate(ENCODER, older), Candidate(ENCODER, older)], FEW)


def test_differences_are_means_over_rounds_with_standard_errors():
    first, second = differences(["one", "two"], [[10.0, 11.0], [20.0, 20.0], [10.0, 12.0]])
    assert first == Difference("one", 10.0, 0.0, 0.0, 1.0, 0.0)
    # 1, 0 and 2 ms more; a sample deviation of 1 over the root of 3.
    assert (second.milliseconds, second.difference) == (12.0, 1.0)
    assert second.difference_error == pytest.approx(3**-0.5)
    assert second.ratio == pytest.approx((1.1 + 1.0 + 1.2) / 3)
    assert second.ratio_error == pytest.approx(0.1 / 3**0.5)
    assert table([first, second]).splitlines()[-1] == "| two | 12.000 | +1.000 ± 0.577 | 1.1000 ± 0.0577 |"


def test_candidates_are_all_cases_in_all_sources():
    names = [each.case.name for each in candidates(["convbert-base 256×128", "bert-base 256x128"])]
    assert names == ["convbert-base 256×128", "bert-base 256×128"]
    assert [each.case.name for each in candidates(["composite"])] == [
        "composite-small 1024×128",
        "composite-small-absolute 1024×128",
    ]
    older = SOURCE / "docs" / ".."
    assert [each.source for each in candidates([CASES[0].name], [SOURCE, older])] == [SOURCE, older]


def test_a_source_that_is_named_several_times_has_as_many_processes():
    assert candidates([CASES[0].name], [SOURCE] * 3) == [Candidate(CASES[0], SOURCE)] * 3


def test_candidates_that_cannot_be_compared_are_errors(tmp_path):
    with pytest.raises(
        InputError, match=r"--sources must be folders that contain src/lightbert, got '.*'; give clones"
    ):
        candidates([CASES[0].name], [SOURCE, tmp_path])
    with pytest.raises(InputError, match="fine-tuning can't be compared"):
        candidates(["fine-tuning", "bert-base"])
    with pytest.raises(InputError, match="two cases or two --sources are required, got only 'bert-base 256×128'"):
        candidates(["bert-base 256×128"])
    with pytest.raises(InputError, match="no case contains 'gpt'"):
        candidates(["gpt"])
    with pytest.raises(InputError, match="rounds must be >= 2 and calls >= 1, got 1 rounds and 2 calls"):
        measure([Candidate(STEP)] * 2, Settings(rounds=1, calls=2, device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_command_requires_a_gpu():
    with pytest.raises(InputError, match="times of training steps require a GPU"):
        main(["base 256×128"])
