"""The profile of a .pte file has the operators of ExecuTorch, and those of XNNPACK within its calls."""

import pytest

from benchmarks.latency_files import slow_file
from benchmarks.operators import Event, profile_program, program_summary
from extras import needs_executorch
from lightbert.processes import THREADS

LINEAR, ADD = "Fully Connected (NC, QP8, F32, QC8W) GEMM", "Add (ND)"
WHERE, CALL = (0, 0), (0, 1)


def run(where, linear, second, add, call):
    return [
        Event(WHERE, "native_call_where.self_out", where - 0.1),
        Event(WHERE, "OPERATOR_CALL", where),
        Event(CALL, f"{LINEAR} #1", linear, delegated=True),
        Event(CALL, f"{LINEAR} #2", second, delegated=True),
        Event(CALL, f"{ADD} #1", add, delegated=True),
        Event(CALL, "DELEGATE_CALL", call),
    ]


def test_a_profile_is_the_sum_of_the_shortest_time_of_each_operator():
    found = program_summary([[], run(2.0, 3.0, 1.0, 0.5, 5.5), run(0.4, 4.0, 0.5, 0.75, 5.75)])
    # The second call of XNNPACK takes 0.5 ms more than its operators, the first one 1 ms.
    expected = {"Fully Connected (NC QP8 F32 QC8W) GEMM": 3.5, ADD: 0.5, "DELEGATE_CALL": 0.5, "where": 0.4}
    assert found.milliseconds == pytest.approx(expected)
    assert list(found.milliseconds) == list(expected)
    assert (found.nodes, found.products) == (4, pytest.approx(3.5))


def test_operators_of_different_calls_are_different_nodes():
    events = [Event((0, step), f"{ADD} #1", 1.0, delegated=True) for step in range(3)]
    assert program_summary([events, events]).milliseconds == {ADD: 3.0}


def test_without_operators_of_xnnpack_its_calls_have_the_time():
    found = program_summary([[Event(CALL, "DELEGATE_CALL", 5.0), Event(WHERE, "OPERATOR_CALL", 1.0)]])
    assert found.milliseconds == {"DELEGATE_CALL": 5.0, "OPERATOR_CALL": 1.0}
    assert (found.nodes, found.products) == (1, 0)


def test_the_rest_of_a_call_is_never_negative():
    found = program_summary([[Event(CALL, f"{ADD} #1", 2.0, delegated=True), Event(CALL, "DELEGATE_CALL", 1.9999)]])
    assert found.milliseconds == {ADD: 2.0, "DELEGATE_CALL": 0.0}


@needs_executorch
@pytest.mark.parametrize(
    ("runtime", "threads", "types"), [("executorch", 1, {"F32"}), ("executorch-int8", 2, {"QP8", "QD8", "QDU8"})]
)
def test_the_profile_of_a_file_has_its_linear_layers(runtime, threads, types, tmp_path, monkeypatch):
    # Two threads require another process.
    monkeypatch.setenv(THREADS, "1")
    path = slow_file("bert-tiny:depth=1", runtime, tmp_path)
    found = profile_program(path, 7, threads=threads, runs=2)
    linear = [kind for kind in found.milliseconds if kind.startswith("Fully Connected")]
    assert linear
    assert all(types & set(kind.replace("(", "").replace(")", "").split()) for kind in linear)
    assert {"DELEGATE_CALL", "embedding"} <= set(found.milliseconds)
    assert 0 < found.products < found.total
