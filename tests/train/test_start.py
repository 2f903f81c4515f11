"""The start of a run: where compiled code is kept, and how long the first steps take."""

import json
import os
from pathlib import Path

import pytest
import torch
import torch._inductor.runtime.compile_tasks  # sets a variable when it is imported
from tiny_runs import recipe_of, train

from lightbert.progress import Bar
from lightbert.train.compilation import keep_compiled_code
from lightbert.train.distributed import World
from lightbert.train.log import FirstStep

VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
ASSEMBLER = "TRITON_PTXAS_PATH"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES, ASSEMBLER):
        # Set first, so that it is restored to what it was.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)


def test_compiled_code_is_kept_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTBERT_CACHE", str(tmp_path))
    keep_compiled_code()
    assert [os.environ[variable] for variable in VARIABLES] == [
        str(tmp_path / "compiled" / name) for name in ("inductor", "triton")
    ]


def test_the_users_variables_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTBERT_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    keep_compiled_code()
    assert os.environ["TRITON_CACHE_DIR"] == "mine"


def test_without_a_writable_cache_folder_the_defaults_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTBERT_CACHE", os.devnull)
    keep_compiled_code()
    assert not any(variable in os.environ for variable in VARIABLES)


def test_the_assembler_of_kernels_is_chosen_before_the_first_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch._inductor.runtime.compile_tasks._set_triton_ptxas_path"
    monkeypatch.setattr(name, lambda: os.environ.update(TRITON_PTXAS_PATH="of PyTorch"))
    keep_compiled_code()
    assert os.environ[ASSEMBLER] == "of PyTorch"
    os.environ[ASSEMBLER] = "of the user"
    keep_compiled_code()
    assert os.environ[ASSEMBLER] == "of the user"


@pytest.mark.parametrize(
    ("device", "compiles", "rank", "says"),
    [("cuda", True, 0, True), ("cuda", False, 0, False), ("cuda", True, 1, False), ("cpu", True, 0, False)],
)
def test_one_line_per_phase_says_how_long_it_compiled(
    device: str,
    compiles: bool,
    rank: int,
    says: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    first = FirstStep(World(rank, 1, torch.device(device)), compiles=compiles)
    bar = Bar("training", None, "steps", 0)
    for _ in range(2):
        first.expect()
        for _ in range(3):
            with first.timed(bar):
                pass
    assert capsys.readouterr().err == "compiling: 0 s\n" * (2 if says else 0)


def test_the_result_says_when_training_began(corpus: Path, tmp_path: Path) -> None:
    outcome = train(recipe_of(corpus, tmp_path, steps=3))
    assert outcome.start_seconds > 0
    assert json.loads((tmp_path / "result.json").read_text())["start_seconds"] == outcome.start_seconds
    # A finished run is read, not trained.
    assert train(recipe_of(corpus, tmp_path, steps=3)) == outcome
