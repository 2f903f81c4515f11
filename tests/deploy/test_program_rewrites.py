"""Programs are rewritten for ExecuTorch without a change of their results."""

from dataclasses import replace

import pytest
import torch
from small import FAMILIES

from lightbert.deploy.program_rewrites import multiply_by_masks, rewrite, split_products, write_out_attention
from lightbert.deploy.programs import exported_program
from lightbert.models import build
from lightbert.tasks.predict.exported import STATES


def traced(family: str) -> torch.export.ExportedProgram:
    return exported_program(build(replace(FAMILIES[family], depth=1), seed=0), STATES, any_batch=False)


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def outputs(program: torch.export.ExportedProgram, length: int, tokens: int) -> torch.Tensor:
    ids = torch.arange(length).unsqueeze(0) % 7 + 5
    (states,) = program.module()(ids, torch.arange(length).unsqueeze(0) < tokens, ids * 0)
    return states


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rewritten_program_has_the_same_results_with_and_without_padding(family):
    program = traced(family)
    cases = [(9, 9), (9, 6), (4, 1), (4, 0)]
    expected = [outputs(program, *case) for case in cases]
    rewrite(program)
    assert not any(part in each for each in operators(program) for part in ("scaled_dot_product_attention", "addcmul"))
    for case, states in zip(cases, expected, strict=True):
        torch.testing.assert_close(outputs(program, *case), states, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (split_products, {"aten.addcmul_.default"}, {"aten.mul.Tensor", "aten.add.Tensor"}),
        (write_out_attention, {"aten.scaled_dot_product_attention.default"}, {"aten.bmm.default", "aten.where.Scalar"}),
        (multiply_by_masks, {"aten.masked_fill.Scalar"}, {"aten.mul.Tensor", "aten.to.dtype"}),
    ],
)
def test_each_rewrite_replaces_its_operators_and_keeps_the_results(change, before, after):
    program = traced("convbert")
    expected = outputs(program, 9, 6)
    assert before <= set(operators(program))
    change(program)
    assert not before & set(operators(program))
    assert after <= set(operators(program))
    program.graph_module.recompile()
    torch.testing.assert_close(outputs(program, 9, 6), expected, atol=1e-6, rtol=1e-5)


def test_the_lengths_of_a_rewritten_program_stay_dynamic():
    program = traced("convbert")
    (result,) = (node for node in program.graph.nodes if node.op == "output")
    rewrite(program)
    products = [node.meta["val"].shape for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    assert len(products) == 2
    assert all(isinstance(shape[1], torch.SymInt) for shape in products)
    assert isinstance(result.args[0][0].meta["val"].shape[1], torch.SymInt)
