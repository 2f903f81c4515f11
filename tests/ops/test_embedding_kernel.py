"""The kernel of an embedding's gradient against fp64."""

import pytest
import torch
from kernels import DEVICE, MARKS

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]


@pytest.mark.parametrize(("tokens", "rows", "width"), [(0, 5, 3), (1, 5, 1), (70, 5, 128), (67, 50, 130), (300, 9, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_sums_the_gradients_of_equal_ids(tokens, rows, width, dtype):
    from lightbert.ops.kernels.embedding import sum_by_row

    torch.manual_seed(0)
    ids = (torch.rand(tokens, device=DEVICE) ** 3 * rows).long()
    grad = torch.randn(tokens, width, device=DEVICE).to(dtype)
    found = sum_by_row(grad, ids, rows)
    expected = torch.zeros(rows, width, dtype=torch.float64).index_add(0, ids.cpu(), grad.double().cpu())
    assert found.dtype is dtype
    rounding = max(1e-5, torch.finfo(dtype).eps)
    torch.testing.assert_close(found.double().cpu(), expected, rtol=rounding, atol=rounding)


def test_the_order_of_equal_ids_is_that_of_their_tokens():
    from lightbert.ops.kernels.embedding import sum_by_row

    ids = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    # In another order, the small number would be lost.
    grad = torch.tensor([[1e8], [-1e8], [1.0]], device=DEVICE).repeat_interleave(32, 0)
    assert sum_by_row(grad, ids.repeat_interleave(32), 2).tolist() == [[32.0], [0.0]]
