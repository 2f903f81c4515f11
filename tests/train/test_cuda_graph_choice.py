"""CUDA graphs are used on a GPU by a single process; several processes fall back with a warning."""

import pytest
import torch

from lightbert.train.cuda_graph import uses_cuda_graph
from lightbert.train.distributed import World


@pytest.mark.parametrize(
    ("wanted", "rank", "size", "device", "used", "warns"),
    [
        (True, 0, 1, "cuda", True, False),
        (False, 0, 1, "cuda", False, False),
        (True, 0, 1, "cpu", False, False),
        (True, 0, 2, "cuda:0", False, True),
        (True, 1, 2, "cuda:1", False, False),
        (True, 0, 2, "cpu", False, False),
    ],
)
def test_cuda_graphs_require_a_single_process(
    wanted: bool, rank: int, size: int, device: str, used: bool, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uses_cuda_graph(wanted, World(rank, size, torch.device(device))) is used
    warning = "warning: cuda_graph=true requires a single process; steps run without CUDA graphs\n"
    assert capsys.readouterr().err == (warning if warns else "")
