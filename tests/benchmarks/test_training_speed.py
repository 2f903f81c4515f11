"""The training benchmark: every kind of work runs, on a CPU at tiny sizes; times require a GPU and are not tested."""

import time
from dataclasses import replace
from unittest import mock

import pytest
import torch

from benchmarks import training
from benchmarks.gpu import KINDS, Kernel, by_kind
from benchmarks.pages import check_page
from benchmarks.training import Figure, Row, Settings, TrainingSpeed, figures, measure, page
from benchmarks.training_cases import (
    CASES,
    Case,
    finetuning,
    matmul_flops,
    moved_bytes,
    our_pass,
    sentence_lengths,
    their_pass,
    whole_step,
)
from extras import needs_trainer
from lightbert.errors import InputError
from lightbert.models import preset
from lightbert.ops import backend
from lightbert.ops.backend import selected

CPU = torch.device("cpu")
TINY = (
    Case("convbert-tiny", 2, 16),
    Case("convbert-tiny", 2, 16, rtd=True),
    Case("convbert-tiny", 2, 64, rtd=True, packed=True),
    Case("convbert-tiny", 2, finetune=True),
    Case("composite-tiny", 2, 16),
)
STEP = "convbert-small 256×128, RTD step"


def row(case, library="lightbert", milliseconds=10.0, speed=1000000.0, memory=1.0):
    return Row(case, library, milliseconds, speed, memory, 3.8e12, 10.5e9, captured=True)


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


def test_packed_rows_contain_several_texts():
    from benchmarks.training_cases import _text_numbers

    texts = _text_numbers(Case("convbert-small", 8, 128, rtd=True, packed=True))
    assert texts.min() == 1
    assert texts.dtype == torch.int32
    assert (texts[:, -1] > 1).all()
    assert ((texts[:, 1:] - texts[:, :-1]).unique() == torch.tensor([0, 1])).all()


@pytest.mark.parametrize("make", [our_pass, whole_step, pytest.param(their_pass, marks=needs_trainer)])
def test_repeated_work_is_possible(make):
    work = make(TINY[0], CPU)
    work()
    work()


def test_flops_are_three_forward_passes_and_a_whole_step_needs_more():
    assert matmul_flops(Case("convbert-small", 2, 128)) == pytest.approx(2 * 128 * 57.0e6, rel=0.02)
    encoder, step = Case("convbert-small", 4, 128), Case("convbert-small", 4, 128, rtd=True)
    for need in (matmul_flops, moved_bytes):
        assert 0 < need(encoder) < need(step)


def test_steps_of_fine_tuning_take_one_batch_after_the_other():
    work = finetuning(Case("convbert-tiny", 2, finetune=True), CPU)
    # Loss, examples, correct predictions, norm and whether the step was applied.
    assert [work().shape for _ in range(3)] == [torch.Size([5])] * 3
    assert 13 < sentence_lengths().mean() < 14.5
    assert sentence_lengths().max() <= 66


def test_figures_are_compared_with_their_targets():
    rows = [
        row("convbert-small 1024×128", speed=3.6e6, memory=13.5),
        row("bert-small 1024×128", speed=3.0e6),
        row("convbert-small 1024×128", "transformers", speed=1.2e6),
        row("composite-small 1024×128", speed=2.0e6),
        row("composite-small-absolute 1024×128", speed=3.0e6),
        row("convbert-small, fine-tuning, batch 32", milliseconds=10.0),
    ]
    found = list(figures(rows))
    assert found == [
        Figure("convbert-small 1024×128", 3.6, "million tokens/s", "at least", 3.5),
        Figure("convbert-small 1024×128", 13.5, "GiB", "at most", 13.0),
        Figure("time of composite / absolute", 1.5, "", "at most", 1.2),
        Figure("tokens/s of ConvBERT / BERT-small, 1024×128", pytest.approx(1.2), "", "at least", 1.0),
        Figure("convbert-small, fine-tuning, batch 32", 100.0, "steps/s", "at least", 90.0),
        Figure("tokens/s of lightbert / transformers, convbert-small 1024×128", pytest.approx(3.0)),
    ]
    assert [figure.outcome for figure in found] == ["reached", "missed", "missed", "reached", "reached", ""]


def test_every_figure_names_a_case_of_the_benchmark():
    found = list(figures([row(case.name, library) for case in CASES for library in ("lightbert", "transformers")]))
    assert len([figure for figure in found if figure.limit]) == 7 + 2 + 5 + 1
    assert len([each for each in found if "two streams" in each.what and "transformers" not in each.what]) == 3


def test_the_page_has_rows_figures_and_where_the_time_goes():
    kernels = [
        Kernel("nvjet_tst", 3000.0, 500),
        Kernel("cutlass_80", 1000.0, 100),
        Kernel("depthwise_backward", 1000.0, 40),
        Kernel("dynamic_conv_forward", 500.0, 50),
        Kernel("multi_tensor_apply", 250.0, 3),
    ]
    step = replace(row(f"{STEP} on two streams"), kinds=tuple(by_kind(kernels)), longest=tuple(kernels[:1]))
    speed = TrainingSpeed("a GPU", 760.0, 4.2, (step, row("bert-small 1024×128", "transformers")), ("mobilebert",))
    text = page(replace(speed, rows=speed.rows[:1]), "python -m benchmarks.training")
    assert "`python -m benchmarks.training` at commit " in text
    assert f"| {STEP} on two streams | lightbert | 10.00 | 1.000 | 1.0 | 5.00 | 2.50 | 75% |" in text
    assert f"| {STEP} on two streams | 1.00 million tokens/s | at least 2.4 | missed |" in text
    assert "Skipped: mobilebert." in text
    assert "| case | products | attention | convolutions | norms | GELU, ReLU feed-forward | compiled | other |" in text
    assert f"| {STEP} on two streams | 4.00 |  | 1.50 |  |  |  | 0.25 | 5.75 | 693 |" in text
    assert set(KINDS) > {kind.name for kind in step.kinds}
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(replace(speed, rows=speed.rows[:1]))
    assert "nvjet_tst" in capture.get()


def test_the_page_must_be_a_file_in_an_existing_folder(tmp_path):
    with pytest.raises(InputError, match=r"--out must be a file in an existing folder, got '.*'; create '.*missing'"):
        check_page("--out", tmp_path / "missing" / "page.md")
    with pytest.raises(InputError, match=r"--page must be a file, got the folder '.*'; add a file name, such as"):
        check_page("--page", tmp_path)


def test_a_measurement_that_fails_is_skipped_and_so_are_those_after_the_time_limit():
    def failing(case, device):
        raise RuntimeError("no such kernel\nand details")

    with mock.patch("benchmarks.training_cases.whole_step", failing):
        report = measure(Settings(device="cpu", peers=False), TINY[:2])
    assert [row.case for row in report.rows] == [TINY[0].name]
    assert report.skipped == (f"{TINY[1].name} (lightbert): no such kernel",)
    report = measure(Settings(device="cpu", peers=False, seconds=-1), TINY)
    assert not report.rows
    assert report.skipped == tuple(f"{case.name} (lightbert): time limit" for case in TINY)


def test_cases_are_compiled_in_processes_and_errors_wait_until_they_are_timed():
    work = training._measurements(TINY[0], Settings(device="cpu", peers=False))
    work.append(replace(work[0], case=Case("no-such-model", 2, 16)))
    assert training._compile(work, CPU, time.time() + 1000) == [True, True]
    assert training._compile(work, CPU, time.time() - 1) == [False, False]


def test_whole_steps_are_measured_with_and_without_each_kernel():
    report = measure(Settings(device="cpu", peers=False, kernels="each"), TINY[:2])
    libraries = [row.library for row in report.rows]
    assert libraries[:2] == ["lightbert", "lightbert, kernels: all"]
    assert libraries[-1] == "lightbert, kernels: none"
    used = set(selected("all")) - {"relu_feedforward"}
    assert {f"lightbert, kernels: all,-{op}" for op in used} == set(libraries[2:-1])


def test_a_measurement_runs_with_the_selected_kernels():
    seen = []

    def make(case, device):
        seen.append(backend._enabled)
        return lambda: None

    with mock.patch("benchmarks.training_cases.whole_step", make):
        measure(Settings(device="cpu", kernels="none,depthwise"), TINY[1:2])
    assert seen == [("depthwise",)]


def test_wrong_input_is_an_error_before_anything_is_measured():
    with pytest.raises(InputError, match="unknown selection of kernels 'gelu'"):
        measure(Settings(device="cpu", kernels="all,-gelu"), TINY)
    with pytest.raises(InputError, match="no case contains 'gpt'; the cases are convbert-small"):
        measure(Settings(cases="gpt", device="cpu"))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="requires a GPU"):
            measure(Settings())
