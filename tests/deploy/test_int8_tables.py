"""Embedding tables of a traced module in int8, with one scale per row."""

import torch
from torch import Tensor, nn

from lightbert.deploy.int8_tables import quantize_tables


class Lookup(nn.Module):
    """Two tables, one of which is also the weight of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 8), nn.Embedding(2, 8)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        states = self.words(ids) + self.kinds(kinds)
        return nn.functional.linear(states, self.words.weight)


def traced(module: nn.Module, *inputs: Tensor) -> torch.fx.GraphModule:
    found: torch.fx.GraphModule = torch.export.export(module, inputs).module()
    return found


def inputs() -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 50, (3, 7))
    return ids, ids % 2


def test_all_tables_are_integers_and_the_result_is_close():
    module, given = Lookup(), inputs()
    graph = traced(module, *given)
    expected = graph(*given)
    quantize_tables(graph)
    tables = [value for value in graph.buffers() if value.dtype is torch.int8]
    assert [table.shape for table in tables] == [(50, 8), (2, 8)]
    error = (graph(*given) - expected).norm() / expected.norm()
    assert 0 < error < 0.01


def test_each_row_has_a_scale_of_its_own():
    table = nn.Embedding(3, 4)
    table.weight.data = torch.tensor([[1e-3, 0, 0, 5e-4], [0, 0, 0, 0], [1e6, -1e6, 0, 10]])
    ids = torch.tensor([0, 1, 2])
    graph = traced(table, ids)
    quantize_tables(graph)
    torch.testing.assert_close(graph(ids), table.weight.data, rtol=0, atol=0.5e6 / 127)
    torch.testing.assert_close(graph(ids)[:2], table.weight.data[:2], rtol=0, atol=0.5e-3 / 127 * 1.01)


def test_the_largest_number_of_a_row_is_exact():
    table, ids = nn.Embedding(20, 6), torch.arange(20)
    graph = traced(table, ids)
    quantize_tables(graph)
    place = table.weight.abs().argmax(1, keepdim=True)
    torch.testing.assert_close(graph(ids).gather(1, place), table.weight.detach().gather(1, place))
