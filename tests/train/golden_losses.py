"""Losses of short runs, one per family and objective, recorded in full precision in tests/golden/losses.json.

Weights, order, masks and samples are the same on every machine. Dropout is off: PyTorch's random generators
differ between platforms.

`OMP_NUM_THREADS=1 python tests/train/golden_losses.py` records them again: after an intended change of training, or
on another machine type, to compare closely there. The diff shows how much the losses changed.
"""

import json
import platform
import re
import tempfile
from pathlib import Path

import torch
from tiny_runs import recipe_of, records, train, write_corpus

FILE = Path(__file__).parents[1] / "golden" / "losses.json"
STEPS = 50
CASES = {
    **{
        f"{model} {objective}": {"model": model, "objective": objective}
        for model in ("bert-tiny", "convbert-tiny", "composite-tiny")
        for objective in ("rtd", "mlm")
    },
    **{
        f"{model} mlm {examples}": {"model": model, "objective": "mlm", "examples": examples}
        for model in ("mobilebert-nano", "ib-bert-nano")
        for examples in ("segments", "pairs")
    },
}


def machine() -> str:
    """Describe the machine: the last digits of a sum depend on it."""
    try:
        match = re.search(r"^(?:model name|CPU part)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    processor = match[1] if match else platform.processor()
    kernels = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}, {processor}, torch {torch.__version__}, {kernels}"


def losses(case: str, corpus: Path, out: Path, steps: int = STEPS) -> list[float]:
    """Train the first steps of a case and return their losses."""
    changes = {"steps": STEPS, "batch": 8, "lr": 3e-4, "dropout": 0.0, "checkpoint_every": 0, "evaluate_every": 0}
    changes |= CASES[case]
    train(recipe_of(corpus, out, **changes), stop_after=steps if steps < STEPS else 0)
    return [record["loss"] for record in records(out)]


def record() -> None:
    """Record the losses of all cases in the file."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder) / "corpus")
        recorded = {case: losses(case, corpus, Path(folder) / case) for case in CASES}
    FILE.write_text(json.dumps({"machine": machine(), "losses": recorded}, indent=1) + "\n")


if __name__ == "__main__":
    record()
