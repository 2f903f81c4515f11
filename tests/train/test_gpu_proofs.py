"""Proofs on a GPU: kernels, captured steps, streams, kills and repeated runs; long ones for `make prove-gpu`.

One test checks the proofs themselves on a CPU, with a tiny model and few steps.
"""

from functools import partial
from statistics import fmean

import pytest
import torch
from children import exit_code, start
from gpu_runs import mean_losses, proof_recipe, write_long_documents
from kills import kill_at_random
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.ops.backend import enabling, use_triton

on_gpu = [pytest.mark.gpu, pytest.mark.prove, pytest.mark.timeout(900)]
GPU = pytest.param("cuda", marks=on_gpu)

# A later phase with another shape, which is captured on its own.
LONGER = [{"length": 512, "steps": 60, "batch": 8}]
TINY = {
    "steps": 4,
    "checkpoint_every": 2,
    "change": {"depth": 1, "width": 32, "narrow": 16, "inner": 32, "positions": 32},
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_long_documents(tmp_path_factory.mktemp("documents") / "long")


@pytest.fixture(scope="module")
def few_documents(tmp_path_factory):
    return write_long_documents(tmp_path_factory.mktemp("documents") / "few", documents=30)


def assert_backends_agree(corpus, where, device, **changes):
    """Without dropout, whose random numbers are drawn differently."""
    runs = []
    for backend in (None, "torch"):
        recipe = proof_recipe(corpus, where / str(backend), device, dropout=0.0, compile="none", **changes)
        runs.append(mean_losses(recipe, backend))
    for kernels, references in zip(*runs, strict=True):
        assert kernels == pytest.approx(references, rel=0.01)


def assert_equal_with(key, corpus, where, device, **changes):
    """Check that a key, true or false, doesn't change the result."""
    for value in (True, False):
        train(proof_recipe(corpus, where / f"{key} {value}", device, **{key: value}, **changes))
    assert_same_results(where / f"{key} True", where / f"{key} False")


def assert_processes_agree(corpus, where, device, **changes):
    runs = [start(proof_recipe(corpus, where / name, device, **changes)) for name in ("one", "other")]
    assert [exit_code(run) for run in runs] == [0, 0]
    assert_same_results(where / "one", where / "other")


@pytest.mark.parametrize("device", [GPU])
def test_200_steps_with_kernels_and_with_references_have_the_same_losses(documents, tmp_path, device):
    assert use_triton("depthwise", torch.empty(1, dtype=torch.bfloat16, device=device), fits=True)
    assert_backends_agree(documents, tmp_path, device)


@pytest.mark.parametrize("compiled", ["none", "blocks"])
@pytest.mark.parametrize("device", [GPU])
def test_200_captured_steps_give_the_bytes_of_eager_ones(documents, tmp_path, device, compiled, capsys):
    assert_equal_with("cuda_graph", documents, tmp_path, device, compile=compiled, phases=LONGER)
    assert "CUDA graphs" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("graphed", "shared", "compiled"),
    [(True, "both", "none"), (False, "both", "none"), (True, "generator", "none"), (True, "generator", "blocks")],
)
@pytest.mark.parametrize("device", [GPU])
def test_200_steps_on_two_streams_give_the_bytes_of_one_stream(
    documents, tmp_path, device, graphed, shared, compiled, capsys
):
    changes = {"cuda_graph": graphed, "shared_embeddings": shared, "compile": compiled}
    assert_equal_with("overlap", documents, tmp_path, device, **changes, accumulate=2)
    assert "CUDA graphs" not in capsys.readouterr().err


@pytest.mark.parametrize("device", [GPU])
def test_20_kills_change_nothing(documents, tmp_path, device, capsys):
    made = partial(
        proof_recipe, documents, device=device, compile="none", steps=60, checkpoint_every=5, evaluate_every=20
    )
    counted = kill_at_random(made, tmp_path, at_any_moment=20)
    with capsys.disabled():
        print(f"\non a GPU: {counted}")


@pytest.mark.parametrize("compiled", ["none", "blocks"])
@pytest.mark.parametrize("device", [GPU])
def test_two_runs_are_byte_identical_also_with_512_tokens(documents, tmp_path, device, compiled):
    assert_processes_agree(documents, tmp_path, device, compile=compiled, phases=LONGER)


def test_the_comparisons_work_on_a_cpu_and_notice_a_difference(few_documents, tmp_path):
    assert_backends_agree(few_documents, tmp_path / "backends", "cpu", **TINY)
    assert_equal_with("cuda_graph", few_documents, tmp_path, "cpu", **TINY, phases=[{"length": 32, "steps": 2}])
    for shared in ("both", "generator"):
        assert_equal_with("overlap", few_documents, tmp_path / shared, "cpu", **TINY, shared_embeddings=shared)
    assert_processes_agree(few_documents, tmp_path, "cpu", **TINY)
    for seed in (0, 1):
        train(proof_recipe(few_documents, tmp_path / str(seed), "cpu", **TINY, seed=seed))
    with pytest.raises(AssertionError):
        assert_same_results(tmp_path / "0", tmp_path / "1")


# Short runs on a GPU, with kernels and without


def short_run(corpus, out, kernels, steps):
    """Train by recorded steps of compiled blocks and return the losses."""
    torch.compiler.reset()
    model = str(corpus / "steady")
    with enabling(kernels):
        train(recipe_of(corpus, out, model=model, steps=steps, device="cuda", compile="blocks", cuda_graph=True))
    return [record["loss"] for record in records(out)]


@pytest.mark.gpu
def test_200_short_steps_have_the_losses_of_the_references(corpus, tmp_path):
    losses, expected = (short_run(corpus, tmp_path / kernels, kernels, 200) for kernels in ("all", "none"))
    assert len(losses) == len(expected)
    # Samples differ after a while, and with them single losses.
    assert losses[:10] == pytest.approx(expected[:10], rel=1e-2)
    assert fmean(losses[-50:]) == pytest.approx(fmean(expected[-50:]), rel=3e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", ["all", "none"])
def test_a_second_run_gives_the_same_bytes(corpus, tmp_path, kernels):
    for name in ("once", "again"):
        short_run(corpus, tmp_path / name, kernels, 30)
    assert_same_results(tmp_path / "again", tmp_path / "once")
