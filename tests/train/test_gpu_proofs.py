"""Long proofs on a GPU, run by `make prove-gpu`: kernels, captured steps, kills and repeated runs.

The tests at the end check the proofs themselves on a CPU, with a tiny model and few steps.
"""

from functools import partial
from pathlib import Path

import pytest
import torch
from children import exit_code, start
from gpu_runs import mean_losses, proof_recipe, write_long_documents
from kills import kill_at_random
from tiny_runs import assert_same_results, train

from lightbert.ops.backend import use_triton

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
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_documents(tmp_path_factory.mktemp("documents") / "long")


@pytest.fixture(scope="module")
def few_documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_documents(tmp_path_factory.mktemp("documents") / "few", documents=30)


def assert_backends_agree(corpus: Path, where: Path, device: str, **changes: object) -> None:
    """Without dropout, whose random numbers are drawn differently."""
    runs = []
    for backend in (None, "torch"):
        recipe = proof_recipe(corpus, where / str(backend), device, dropout=0.0, compile="none", **changes)
        runs.append(mean_losses(recipe, backend))
    for kernels, references in zip(*runs, strict=True):
        assert kernels == pytest.approx(references, rel=0.01)


def assert_captures_change_nothing(corpus: Path, where: Path, device: str, **changes: object) -> None:
    for graphed in (True, False):
        train(proof_recipe(corpus, where / str(graphed), device, cuda_graph=graphed, **changes))
    assert_same_results(where / "True", where / "False")


def assert_streams_change_nothing(corpus: Path, where: Path, device: str, **changes: object) -> None:
    for overlap in (True, False):
        train(proof_recipe(corpus, where / str(overlap), device, overlap=overlap, **changes))
    assert_same_results(where / "True", where / "False")


def assert_processes_agree(corpus: Path, where: Path, device: str, **changes: object) -> None:
    runs = [start(proof_recipe(corpus, where / name, device, **changes)) for name in ("one", "other")]
    assert [exit_code(run) for run in runs] == [0, 0]
    assert_same_results(where / "one", where / "other")


@pytest.mark.parametrize("device", [GPU])
def test_200_steps_with_kernels_and_with_references_have_the_same_losses(
    documents: Path, tmp_path: Path, device: str
) -> None:
    assert use_triton("depthwise", torch.empty(1, dtype=torch.bfloat16, device=device), fits=True)
    assert_backends_agree(documents, tmp_path, device)


@pytest.mark.parametrize("compiled", ["none", "blocks"])
@pytest.mark.parametrize("device", [GPU])
def test_200_captured_steps_give_the_bytes_of_eager_ones(
    documents: Path, tmp_path: Path, device: str, compiled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_captures_change_nothing(documents, tmp_path, device, compile=compiled, phases=LONGER)
    assert "CUDA graphs" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("graphed", "shared", "compiled"),
    [(True, "both", "none"), (False, "both", "none"), (True, "generator", "none"), (True, "generator", "blocks")],
)
@pytest.mark.parametrize("device", [GPU])
def test_200_steps_on_two_streams_give_the_bytes_of_one_stream(
    documents: Path,
    tmp_path: Path,
    device: str,
    graphed: bool,
    shared: str,
    compiled: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = {"cuda_graph": graphed, "shared_embeddings": shared, "compile": compiled}
    assert_streams_change_nothing(documents, tmp_path, device, **changes, accumulate=2)
    assert "CUDA graphs" not in capsys.readouterr().err


@pytest.mark.parametrize("device", [GPU])
def test_20_kills_change_nothing(
    documents: Path, tmp_path: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = partial(
        proof_recipe, documents, device=device, compile="none", steps=60, checkpoint_every=5, evaluate_every=20
    )
    counted = kill_at_random(made, tmp_path, at_any_moment=20)
    with capsys.disabled():
        print(f"\non a GPU: {counted}")


@pytest.mark.parametrize("compiled", ["none", "blocks"])
@pytest.mark.parametrize("device", [GPU])
def test_two_runs_are_byte_identical_also_with_512_tokens(
    documents: Path, tmp_path: Path, device: str, compiled: str
) -> None:
    assert_processes_agree(documents, tmp_path, device, compile=compiled, phases=LONGER)


def test_the_comparison_of_backends_works_on_a_cpu(few_documents: Path, tmp_path: Path) -> None:
    assert_backends_agree(few_documents, tmp_path, "cpu", **TINY)


def test_the_comparison_of_captured_and_eager_steps_works_on_a_cpu(few_documents: Path, tmp_path: Path) -> None:
    assert_captures_change_nothing(few_documents, tmp_path, "cpu", **TINY, phases=[{"length": 32, "steps": 2}])


@pytest.mark.parametrize("shared", ["both", "generator"])
def test_the_comparison_of_streams_works_on_a_cpu(few_documents: Path, tmp_path: Path, shared: str) -> None:
    assert_streams_change_nothing(few_documents, tmp_path, "cpu", **TINY, shared_embeddings=shared)


def test_the_comparison_of_processes_works_on_a_cpu(few_documents: Path, tmp_path: Path) -> None:
    assert_processes_agree(few_documents, tmp_path, "cpu", **TINY)


def test_a_difference_between_runs_is_noticed(few_documents: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        train(proof_recipe(few_documents, tmp_path / str(seed), "cpu", **TINY, seed=seed))
    with pytest.raises(AssertionError):
        assert_same_results(tmp_path / "0", tmp_path / "1")
