"""Every kernel compiles for the GPUs that lightbert supports, with the signatures of the ops; no GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")

A100, RTX_4090, H100 = 80, 89, 90
SHARED_MEMORY = {A100: 163 * 1024, RTX_4090: 99 * 1024, H100: 227 * 1024}
"""Bytes that a program can use on these GPUs, by CUDA's programming guide."""


def compile_all(capability: int, cache: Path, *, every: bool) -> tuple[list[str], dict[str, int]]:
    """The kernels of the package, and the shared memory of those that were compiled, in a process of its own."""
    hidden = ("TRITON_INTERPRET", "LIGHTBERT_KERNELS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    script = Path(__file__).with_name("compile_kernels.py")
    # The cases are those of the benchmark of kernels.
    paths = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), str(capability), str(every)],
        env={**environment, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    return found["kernels"], found["compiled"]


def too_large(compiled: dict[str, int], capability: int) -> dict[str, int]:
    """Kernels that run on a GPU and need more shared memory than it has.

    Those of feed-forwards run on H100 to B200 only, the one for rows with biases not on the RTX series.
    """
    left_out = ["relu_feedforward"] if capability < H100 else []
    if capability == RTX_4090:
        left_out.append("biased_attention_row_kernel")
    runs = {name: size for name, size in compiled.items() if not any(each in name for each in left_out)}
    return {name: size for name, size in runs.items() if size > SHARED_MEMORY[capability]}


def test_every_kernel_compiles(tmp_path):
    kernels, compiled = compile_all(H100, tmp_path, every=False)
    assert len(kernels) > 10
    assert sorted(compiled) == kernels
    assert not too_large(compiled, H100)


@pytest.mark.prove
@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", SHARED_MEMORY)
def test_every_variant_of_the_kernels_compiles_and_fits_into_shared_memory(capability, tmp_path):
    kernels, compiled = compile_all(capability, tmp_path, every=True)
    assert sorted(compiled) == kernels
    assert not too_large(compiled, capability)
