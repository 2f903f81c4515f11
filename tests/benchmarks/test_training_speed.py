"""The training benchmark: every kind of work runs, on a CPU at tiny sizes; times require a GPU and are not tested."""

import time
from dataclasses import replace
from unittest import mock

import pytest
import torch

from benchmarks import training, training_rows
from benchmarks.gpu import Kernel
from benchmarks.kernel_cases import OPS
from benchmarks.pages import check_page
from benchmarks.training import Settings, TrainingSpeed, measure, page
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
from benchmarks.training_rows import KernelPass, KernelsAlone, Row
from benchmarks.training_targets import Figure, figures
from extras import needs_trainer
from lightbert.errors import InputError
from lightbert.models import preset
from lightbert.ops import backend
from lightbert.ops.backend import selected
from lightbert.progress import progress

CPU = torch.device("cpu")
TINY = (
    Case("convbert-tiny", 2, 16),
    Case("convbert-tiny", 2, 16, rtd=True),
    Case("convbert-tiny", 2, 64, rtd=True, packed=True),
    Case("convbert-tiny", 2, finetune=True),
    Case("composite-tiny", 2, 16),
)


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


def test_flops_are_three_forward_passes():
    assert matmul_flops(Case("convbert-small", 2, 128)) == pytest.approx(2 * 128 * 57.0e6, rel=0.02)


def test_a_whole_step_needs_more_than_its_encoder():
    encoder, step = Case("convbert-small", 4, 128), Case("convbert-small", 4, 128, rtd=True)
    for need in (matmul_flops, moved_bytes):
        assert 0 < need(encoder) < need(step)


def test_steps_of_fine_tuning_take_one_batch_after_the_other():
    work = finetuning(Case("convbert-tiny", 2, finetune=True), CPU)
    # Loss, examples, correct predictions, norm and whether the step was applied.
    assert [work().shape for _ in range(3)] == [torch.Size([5])] * 3
    assert 13 < sentence_lengths().mean() < 14.5
    assert sentence_lengths().max() <= 66


COMPOSITE = ("composite-small-absolute 1024×128", "composite-small 1024×128")
SMALL = ("convbert-small 1024×128", "bert-small 1024×128")


def test_figures_are_compared_with_their_targets():
    rows = [
        row("convbert-small 1024×128", speed=3.6e6, memory=13.5),
        row("bert-small 1024×128", speed=3.0e6),
        row("convbert-small 1024×128", "transformers", speed=1.2e6),
        row("composite-small 1024×128", speed=2.0e6),
        row("composite-small-absolute 1024×128", speed=3.0e6),
        row("convbert-small, fine-tuning, batch 32", milliseconds=10.0),
    ]
    assert figures(rows) == (
        Figure("convbert-small 1024×128", 3.6, "million tokens/s", "at least", 3.5, ("convbert-small 1024×128",)),
        Figure("convbert-small 1024×128", 13.5, "GiB", "at most", 13.0),
        Figure("time of composite / absolute", 1.5, "", "at most", 1.2, COMPOSITE),
        Figure("tokens/s of ConvBERT / BERT-small, 1024×128", pytest.approx(1.2), "", "at least", 1.0, SMALL),
        Figure("convbert-small, fine-tuning, batch 32", 100.0, "steps/s", "at least", 90.0),
        Figure("tokens/s of lightbert / transformers, convbert-small 1024×128", pytest.approx(3.0)),
    )
    assert [figure.verdict for figure in figures(rows)] == ["reached", "missed", "missed", "reached", "reached", ""]


def test_kernels_alone_are_compared_with_what_they_replace():
    times = {
        "triton": (10.0, 30.0),
        "unfold eager": (100.0, 300.0),
        "unfold compiled": (40.0, 120.0),
        "without bias": (8.0, 18.0),
    }
    named = {
        name: (lambda **given: next(iter(given.values())), lambda size: {"values": torch.zeros(3)}) for name in OPS
    }

    def found(name, op):
        return [(variant, variant) for variant in times]

    with mock.patch.multiple(
        training_rows,
        OPS=named,
        variants=found,
        time_variant=lambda variant, sets: times[variant],
        necessary_bytes=lambda inputs, out: (1, 12_000_000),
    ):
        alone = training_rows.kernels_alone(bandwidth=1e12)
    found_figures = alone.figures
    assert [(each.value, each.goal) for each in found_figures[:3]] == [
        (10.0, "at least 5"),
        (4.0, "at least 5"),
        (pytest.approx(0.4), "at least 0.6"),
    ]
    assert [(each.what, each.value, each.goal) for each in found_figures[3:5]] == [
        ("time of composite / plain attention 1024×128, forward", 1.25, "at most 1.3"),
        ("time of composite / plain attention 1024×128, backward", 2.0, "at most 1.5"),
    ]
    assert [each.what for each in found_figures[5:]] == [
        f"time of composite / plain attention 128×512, {way}" for way in ("forward", "backward")
    ]
    speed = TrainingSpeed("a GPU", 100.0, 4.0, (), kernels=alone)
    assert speed.figures == found_figures
    text = page(speed, "python -m benchmarks.training")
    # 2 · 1024 · 128 · 128 · 9 FLOPs at 100 TFLOP/s, and a byte of 12 MB in the forward pass.
    assert "| dynamic convolution 1024×128, forward | 10.0 | 3.0 | 0.0 | 30% |" in text
    assert "| dynamic convolution 1024×128, backward | 20.0 | 6.0 | 3.0 | 30% |" in text
    # 4 · 1024 · 128² · 256 FLOPs.
    assert "| composite attention 1024×128, forward | 10.0 | 171.8 | 0.0 | 1718% |" in text
    assert "| PyTorch's plain attention 128×512, backward | 10.0 | 859.0 | 3.0 | 8590% |" in text


def test_every_figure_names_a_case_of_the_benchmark():
    rows = [row(case.name, library) for case in CASES for library in ("lightbert", "transformers")]
    found = figures(rows)
    assert len([each for each in found if each.limit]) == 7 + 2 + 5 + 1
    assert len([each for each in found if "two streams" in each.what and "transformers" not in each.what]) == 3


def test_the_page_has_all_rows_and_figures():
    rows = (row("convbert-small 256×128, RTD step on two streams"), row("bert-small 1024×128", "transformers"))
    text = page(TrainingSpeed("a GPU", 760.0, 4.2, rows[:1], ("mobilebert 512×128",)), "python -m benchmarks.training")
    assert "`python -m benchmarks.training` at commit " in text
    assert (
        "| convbert-small 256×128, RTD step on two streams | lightbert | 10.00 | 1.000 | 1.0 | 5.00 | 2.50 | 75% |"
        in text
    )
    assert "| convbert-small 256×128, RTD step on two streams | 1.00 million tokens/s | at least 2.4 | missed |" in text
    assert "Skipped: mobilebert 512×128." in text


def test_the_page_says_where_the_time_goes():
    kinds = (
        Kernel("matrix products", 4000.0, 600),
        Kernel("depthwise convolution", 1000.0, 40),
        Kernel("dynamic convolution", 500.0, 50),
        Kernel("optimizer", 250.0, 3),
    )
    rows = (replace(row("convbert-small 256×128, RTD step"), kinds=kinds), row("bert-small 1024×128"))
    text = page(TrainingSpeed("a GPU", 760.0, 4.2, rows), "python -m benchmarks.training")
    section = text.partition("## Where the time goes")[2]
    assert (
        "| case | products | attention | convolutions | norms | GELU, ReLU feed-forward | compiled | other |" in section
    )
    assert "| convbert-small 256×128, RTD step | 4.00 |  | 1.50 |  |  |  | 0.25 | 5.75 | 693 |" in section
    assert "bert-small 1024×128" not in section


def test_the_page_says_what_limits_missed_targets():
    kinds = tuple(
        Kernel(name, 1000.0 * ms, 1) for name, ms in (("products", 5), ("compiled", 3), ("norm", 1), ("x", 1))
    )
    rows = (
        replace(row("mobilebert 512×128", milliseconds=10.0, speed=0.9e6), kinds=kinds),
        row(COMPOSITE[0], speed=3e6),
        replace(row(COMPOSITE[1], speed=2e6), flops=5.7e12),
        row("convbert-small 128×128", speed=3e6),
    )
    section = page(TrainingSpeed("a GPU", 760.0, 4.2, rows), "python -m benchmarks.training").partition(
        "## What limits"
    )[2]
    assert [line for line in section.partition("##")[0].splitlines() if line.startswith("- ")] == [
        "- mobilebert 512×128: 10.00 ms, the target is 5.00. FLOPs take 5.00 and bytes 2.50, 150% of the target. "
        "Longest, in ms: products 5.00, compiled 3.00, norm 1.00.",
        "- time of composite / absolute: 1.50; by the least times, 7.50 and 10.00 ms, it would be 1.33.",
    ]


def test_the_page_says_what_limits_kernels_that_miss_their_targets():
    passes = (
        KernelPass("convolution, forward", 10.0, flops=1e6, moved=20e6),
        KernelPass("convolution, backward", 20.0, flops=2e9, moved=40e6),
        KernelPass("composite attention, forward", 100.0, flops=3e9, moved=120e6),
        KernelPass("composite attention, backward", 100.0, flops=3e9, moved=120e6),
    )
    missed = (
        Figure("of the bandwidth", 0.5, "", "at least", 0.6, kernels=("convolution, forward", "convolution, backward")),
        Figure("composite / plain, forward", 1.6, "", "at most", 1.2, kernels=("composite attention, forward",)),
        Figure("composite / plain, backward", 1.4, "", "at most", 1.5, kernels=("composite attention, backward",)),
    )
    speed = TrainingSpeed("a GPU", 100.0, 4.0, (), kernels=KernelsAlone(missed, passes))
    section = page(speed, "python -m benchmarks.training").partition("## What limits")[2]
    assert [line for line in section.partition("##")[0].splitlines() if line.startswith("- ")] == [
        # 5 and 20 µs: bytes forward, FLOPs backward.
        "- of the bandwidth: 30.0 µs, the target is 25.0. FLOPs take 20.0 and bytes 15.0: by the longer of both, "
        "100% of the target.",
        "- composite / plain, forward: 100.0 µs, the target is 75.0. FLOPs take 30.0 and bytes 30.0: by the longer of "
        "both, 40% of the target.",
    ]


def test_a_page_without_missed_targets_says_nothing_about_limits():
    rows = (row("convbert-small 128×128", speed=3e6), row("bert-small 128×512"))
    assert "## What limits" not in page(TrainingSpeed("a GPU", 760.0, 4.2, rows), "python -m benchmarks.training")


def test_the_page_must_be_a_file_in_an_existing_folder(tmp_path):
    check_page("--out", tmp_path / "training.md")
    with pytest.raises(InputError, match=r"--out must be a file in an existing folder, got '.*missing/training\.md'"):
        check_page("--out", tmp_path / "missing" / "training.md")
    with pytest.raises(InputError, match=r"--page must be a file, got the folder '.*'; add a file name"):
        check_page("--page", tmp_path)


def tiny_measurements(*cases):
    settings = Settings(device="cpu", peers=False)
    return [one for case in cases for one in training._measurements(case, settings)]


FINETUNING = next(case for case in TINY if case.finetune)


def test_processes_measure_one_at_a_time_and_report_what_failed():
    work = tiny_measurements(TINY[0], TINY[4], FINETUNING)
    work[1] = replace(work[1], make=failing)
    shared = training_rows.Conditions(CPU, time.time() + 1000)
    with progress("training speed", total=3, unit="measurements") as bar:
        first, second, third = training_rows.in_processes(work, shared, bar)
    assert (first.case, second, third.case) == (TINY[0].name, "no such kernel", FINETUNING.name)


def test_nothing_is_measured_or_compiled_after_the_time_limit():
    report = measure(Settings(device="cpu", peers=False, seconds=-1), TINY)
    assert not report.rows
    assert report.skipped == tuple(f"{case.name} (lightbert): time limit" for case in TINY)
    shared = training_rows.Conditions(CPU, time.time() - 1)
    with progress("training speed", total=2, unit="measurements") as bar:
        work = tiny_measurements(TINY[0], FINETUNING)
        assert training_rows.in_processes(work, shared, bar) == ["time limit"] * 2


def failing(case, device):
    raise RuntimeError("no such kernel\nand details")


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

    with mock.patch("benchmarks.training.whole_step", make):
        measure(Settings(device="cpu", kernels="none,depthwise"), TINY[1:2])
    assert seen == [("depthwise",)]


def test_an_unknown_kernel_or_case_is_an_error_before_anything_is_measured():
    with pytest.raises(InputError, match="unknown selection of kernels 'gelu'"):
        measure(Settings(device="cpu", kernels="all,-gelu"), TINY)
    with pytest.raises(InputError, match="no case contains 'gpt'; the cases are convbert-small"):
        measure(Settings(cases="gpt", device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="requires a machine without a GPU")
def test_a_machine_without_a_gpu_is_an_error():
    with pytest.raises(InputError, match="requires a GPU"):
        measure(Settings())
