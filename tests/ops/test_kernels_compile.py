"""Every kernel compiles for the GPUs that lightbert supports, with the signatures of the ops; no GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")

A100, H100 = 80, 90


def compile_all(capability: int, cache: Path, *, every: bool) -> dict[str, list[str]]:
    """The kernels of the package, and those that were compiled, in a process without the interpreter."""
    hidden = ("TRITON_INTERPRET", "LIGHTBERT_KERNELS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run(
        [sys.executable, str(script), str(capability), str(every)],
        env={**environment, "TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_every_kernel_compiles(tmp_path):
    found = compile_all(H100, tmp_path, every=False)
    assert len(found["kernels"]) > 10
    assert found["compiled"] == found["kernels"]


@pytest.mark.prove
@pytest.mark.parametrize("capability", [A100, H100])
def test_every_variant_of_the_kernels_compiles(capability, tmp_path):
    found = compile_all(capability, tmp_path, every=True)
    assert found["compiled"] == found["kernels"]
