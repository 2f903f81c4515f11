"""Commands of lightbert in processes of their own, which save and stop when the time is over."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_POLL = 0.2
"""Seconds between two looks at a process."""
_GRACE = 60.0
"""Seconds that a process has to save a checkpoint after it was told to stop."""


def environment(jobs: int) -> dict[str, str]:
    """The environment of a process: the cores are divided among the jobs, unless their number is set."""
    cores = str(max(1, (os.cpu_count() or 1) // jobs))
    return {"OMP_NUM_THREADS": cores, "TORCHINDUCTOR_COMPILE_THREADS": cores, **os.environ}


def run_command(command: list[str], log: Path, is_over: Callable[[], bool], environment: dict[str, str]) -> int:
    """Run a command of lightbert to its end, or until the time is over: then it saves a checkpoint and stops."""
    with log.open("a", encoding="utf-8") as file:
        print(f"$ {' '.join(command)}", file=file, flush=True)
        with subprocess.Popen([sys.executable, "-m", *command], stdout=file, stderr=file, env=environment) as process:
            while process.poll() is None:
                if is_over():
                    return _stop(process)
                time.sleep(_POLL)
            return process.returncode


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
