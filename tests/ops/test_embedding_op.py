"""The gradient of an embedding with a fixed order of summation, against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from kernels import DEVICE
from torch._dynamo.backends.common import aot_autograd

from lightbert.ops.backend import using
from lightbert.ops.embedding import embedding, embedding_backward_operator

SHAPES = {
    "one row": (1, (3, 5)),
    "segments": (2, (3, 50)),
    "few": (4, (7,)),
    "more": (5, (3, 50)),
    "empty": (9, (0, 5)),
}


def gradient(op, ids, table, direction):
    leaf = table.clone().requires_grad_()
    out = op(ids, leaf)
    out.backward(direction)
    return out.detach(), leaf.grad


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("numbers", [torch.int64, torch.int32])
def test_the_gradient_is_the_sum_over_equal_ids(kind, numbers):
    rows, shape = SHAPES[kind]
    ids = torch.randint(0, rows, shape, dtype=numbers)
    table, direction = torch.randn(rows, 3, dtype=torch.float64), torch.randn(*shape, 3, dtype=torch.float64)
    with using("triton"):
        found = gradient(embedding, ids, table, direction)
    for result, expected in zip(found, gradient(F.embedding, ids, table, direction), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "counts", [(0, 1, 63, 64, 65, 300), (500, 0, 0, 0, 0, 7), (128, 128, 0, 64, 0, 1), (31, 32, 33, 1, 1, 2)]
)
def test_frequent_and_rare_rows(counts):
    """Rows with whole chunks of tokens, parts of chunks, and neither."""
    ids = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    ids = ids[torch.randperm(len(ids))]
    table = torch.randn(len(counts), 3, dtype=torch.float64)
    direction = torch.randint(-9, 9, (len(ids), 3)).double()
    with using("triton"):
        _, found = gradient(embedding, ids, table, direction)
    torch.testing.assert_close(found, gradient(F.embedding, ids, table, direction)[1], rtol=0, atol=0)


def test_a_cpu_uses_the_function_of_pytorch():
    table = torch.randn(9, 3, requires_grad=True)
    assert type(embedding(torch.tensor([1, 1]), table).grad_fn).__name__ == "EmbeddingBackward0"


@pytest.mark.parametrize("rows", [2, 9])
def test_compiled_code_scatters_nothing(rows):
    """Scattered additions become atomic ones on a GPU."""
    graphs = []

    def keep(module, example):
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    ids, direction = torch.randint(0, rows, (4, 6)), torch.randn(4, 6, 3)
    compiled = torch.compile(embedding, backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    table = torch.randn(rows, 3)
    with using("triton"):
        found = gradient(compiled, ids, table, direction)
    _, backward = graphs
    assert not any(word in backward for word in ("index_put", "scatter", "embedding_dense_backward"))
    assert ("lightbert.embedding_backward" in backward) == (rows > 4)
    for result, expected in zip(found, gradient(F.embedding, ids, table, direction), strict=True):
        torch.testing.assert_close(result, expected)


def test_torch_accepts_the_custom_op():
    torch.library.opcheck(embedding_backward_operator, (torch.randn(4, 6, 3), torch.randint(0, 9, (4, 6)), 9))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 512, 30522])
def test_captured_and_compiled_gradients_have_the_same_bits_in_every_run(rows):
    ids = (torch.rand(256, 128, device=DEVICE) ** 4 * rows).long()
    table, direction = torch.randn(rows, 128, device=DEVICE), torch.randn(256, 128, 128, device=DEVICE)
    compiled = torch.compile(embedding, dynamic=False)
    first = gradient(compiled, ids, table, direction)[1]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = gradient(compiled, ids, table, direction)[1]
    for _ in range(5):
        graph.replay()
        assert torch.equal(again, first)
    exact = gradient(F.embedding, ids, table.double(), direction.double())[1]
    torch.testing.assert_close(first.double(), exact, rtol=1e-4, atol=1e-3)
