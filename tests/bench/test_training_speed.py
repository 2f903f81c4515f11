"""The training benchmark: every kind of work runs, on a CPU at tiny sizes; times require a GPU and are not tested."""

from unittest import mock

import pytest
import torch

from extras import needs_trainer
from lightbert.bench.training import Settings, measure
from lightbert.bench.training_cases import CASES, Case, matmul_flops, our_pass, their_pass, whole_step
from lightbert.errors import InputError
from lightbert.models import preset
from lightbert.ops import backend
from lightbert.ops.backend import selected

CPU = torch.device("cpu")
TINY = (Case("convbert-tiny", 2, 16), Case("convbert-tiny", 2, 16, rtd=True), Case("composite-tiny", 2, 16))


def test_every_case_is_a_preset():
    for case in CASES:
        assert case.length <= (preset(case.model).positions or 512)


def test_a_row_has_the_tokens_of_its_batch_per_second():
    report = measure(Settings(device="cpu", peers=False), TINY)
    assert [row.case for row in report.rows] == [case.name for case in TINY]
    for row, case in zip(report.rows, TINY, strict=True):
        assert row.tokens_per_second == pytest.approx(case.tokens / row.milliseconds * 1e3)
    assert set(report.to_json()["metrics"]) == {f"{case.name}/lightbert" for case in TINY}


@needs_trainer
def test_models_of_transformers_are_measured_in_the_same_run():
    report = measure(Settings(device="cpu"), TINY[:1])
    assert [row.library for row in report.rows] == ["lightbert", "transformers"]


@pytest.mark.parametrize("make", [our_pass, whole_step, pytest.param(their_pass, marks=needs_trainer)])
def test_repeated_work_is_possible(make):
    work = make(TINY[0], CPU)
    work()
    work()


def test_flops_are_three_forward_passes_per_token():
    assert matmul_flops(Case("convbert-small", 1, 128)) == pytest.approx(57.0e6, rel=0.02)


def test_cases_after_the_time_limit_are_reported_as_skipped():
    report = measure(Settings(device="cpu", peers=False, seconds=-1), TINY)
    assert not report.rows
    assert report.skipped == tuple(f"{case.name} (lightbert)" for case in TINY)


def test_whole_steps_are_measured_with_and_without_each_kernel():
    report = measure(Settings(device="cpu", peers=False, kernels="each"), TINY[:2])
    libraries = [row.library for row in report.rows]
    assert libraries[:3] == ["lightbert", "lightbert, kernels: all", "lightbert, kernels: measured"]
    assert libraries[-1] == "lightbert, kernels: none"
    assert {f"lightbert, kernels: all,-{op}" for op in selected("all")} == set(libraries[3:-1])


def test_a_measurement_runs_with_the_selected_kernels():
    seen = []

    def make(case, device):
        seen.append(backend._enabled)
        return lambda: None

    with mock.patch("lightbert.bench.training.whole_step", make):
        measure(Settings(device="cpu", kernels="none,depthwise"), TINY[1:2])
    assert seen == [("depthwise",)]


def test_an_unknown_kernel_is_an_error_before_anything_is_measured():
    with pytest.raises(InputError, match="unknown selection of kernels 'gelu'"):
        measure(Settings(device="cpu", kernels="all,-gelu"), TINY)


def test_an_unknown_case_is_an_error():
    with pytest.raises(InputError, match="no case contains 'gpt'; the cases are convbert-small"):
        measure(Settings(cases="gpt", device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="requires a machine without a GPU")
def test_a_machine_without_a_gpu_is_an_error():
    with pytest.raises(InputError, match="requires a GPU"):
        measure(Settings())
