"""The page of latencies says which aims are reached, and shows the operators of the others."""

import pytest

from benchmarks.latency_files import EXECUTORCH, encoder_of, onnx_file
from benchmarks.latency_limits import (
    AIMS,
    EXECUTORCH_AIMS,
    Aim,
    Candidate,
    Outcome,
    Profile,
    outcomes,
    profile,
    section,
    summary,
)
from benchmarks.latency_page import page
from extras import needs_onnx
from lightbert.deploy.latency import random_text

OURS, OTHER = Candidate("convbert-tiny", "onnx"), Candidate("bert-tiny", "onnx")


def event(name, kind, microseconds):
    return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds, "args": {"op_name": kind}}


def test_a_profile_is_the_sum_of_the_shortest_time_of_each_node():
    events = [
        {"cat": "Session", "name": "model_run", "dur": 9999},
        event("one", "Gelu", 400),
        event("two", "Gemm", 900),
        event("three", "Gemm", 300),
        {"cat": "Node", "name": "two_fence_before", "dur": 1, "args": {"op_name": "Gemm"}},
        event("two", "Gemm", 700),
        event("one", "Gelu", 500),
    ]
    found = summary(events)
    assert found.milliseconds == pytest.approx({"Gemm": 1.0, "Gelu": 0.4})
    assert list(found.milliseconds) == ["Gemm", "Gelu"]
    assert (found.total, found.products, found.nodes) == (pytest.approx(1.4), pytest.approx(1.0), 3)


@needs_onnx
@pytest.mark.parametrize(
    ("runtime", "kinds"),
    [("onnx", {"Gemm", "Attention", "Conv"}), ("int8", {"DynamicQuantizeMatMul", "Attention", "QLinearConv"})],
    ids=["onnx", "int8"],
)
def test_the_profile_of_a_file_has_its_matrix_products(runtime, kinds, tmp_path):
    content = onnx_file("convbert-tiny", runtime, encoder_of("convbert-tiny"), tmp_path)
    found = profile(content, random_text(7), threads=1, runs=2)
    assert kinds <= set(found.milliseconds)
    assert 0 < found.products < found.total


@needs_onnx
def test_aims_are_measured_and_missed_ones_profiled(tmp_path):
    easy, hard = Aim(OURS, OTHER, 7, 1e9), Aim(OURS, OTHER, 7, 1e-9)
    one, other = outcomes([easy, hard], tmp_path, threads=1, rounds=2)
    assert one.reached
    assert one.operators is None
    assert not other.reached
    assert other.operators is not None
    assert all(each.total > 0 for each in other.operators)


@needs_onnx
def test_aims_in_eager_pytorch_have_no_profile(tmp_path):
    eager = [Candidate(each.model, "torch") for each in (OURS, OTHER)]
    (found,) = outcomes([Aim(*eager, 7, 1e-9)], tmp_path, threads=1, rounds=1)
    assert not found.reached
    assert found.operators is None


def test_the_section_has_the_ratios_that_products_alone_would_give():
    ours, other = Profile({"Gemm": 60.0, "Gelu": 20.0}, 7), Profile({"MatMul": 80.0, "Slice": 40.0}, 9)
    content = section(
        [Outcome(Aim(OURS, OTHER, 128, 0.5), 0.66, (ours, other)), Outcome(Aim(OURS, OTHER, 512, 0.5), 0.5)],
        "one thread",
    )
    assert "| convbert-tiny, onnx | bert-tiny, onnx | 128 | ≤ 0.50 | 0.66 | missed by 32% |" in content
    assert "| convbert-tiny, onnx | bert-tiny, onnx | 512 | ≤ 0.50 | 0.50 | reached |" in content
    assert "| convbert-tiny, onnx | bert-tiny, onnx | 80.0 | 60.0 | 120.0 | 80.0 | 0.50 | 0.75 |" in content
    assert "- bert-tiny, onnx, 128 tokens, 9 nodes, milliseconds: MatMul 80.0, Slice 40.0" in content


def test_without_missed_aims_there_is_no_profile():
    content = section([Outcome(Aim(OURS, OTHER, 128, 0.5), 0.4)], "one thread")
    assert "reached" in content
    assert "products" not in content


@needs_onnx
def test_the_page_ends_with_the_limits():
    content = page([], [Aim(OURS, OTHER, 7, 1e9)], threads=(1, 2), rounds=1, command="the command")
    assert content.startswith("# Latency")
    assert "CPU time with one thread, wall time with 2 threads" in content
    assert content.index("## Limits, one thread") < content.index("## Limits, 2 threads")


def test_every_aim_compares_different_candidates_and_those_of_executorch_are_separate():
    aims = (*AIMS, *EXECUTORCH_AIMS)
    assert len(aims) == len(set(aims))
    assert all(aim.ours != aim.other for aim in aims)
    assert not any(aim.runtimes & set(EXECUTORCH) for aim in AIMS)
    assert all(aim.runtimes == set(EXECUTORCH) for aim in EXECUTORCH_AIMS)
