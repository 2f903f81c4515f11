"""Programs of torch.export: .pt2 for PyTorch, .pte for ExecuTorch."""

import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
import torch
from small import FAMILIES
from tiny_classifiers import tiny_model, write_tiny_model
from torch import Tensor, nn

import lightbert
from extras import needs_executorch
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.deploy.programs import (
    exported_program,
    join_layers,
    multiply_by_masks,
    quantize_tables,
    rewrite,
    split_products,
    write_out_attention,
)
from lightbert.errors import InputError
from lightbert.models import build, preset
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.exported import STATES
from lightbert.tasks.predict.predictor import Predictor

linear = torch.ops.aten.linear.default

REVIEWS = Classify(("bad", "good"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exported_to_pt2(family, tmp_path):
    done = export(build(replace(FAMILIES[family], depth=1), seed=0), tmp_path / "out", to="pt2")
    assert (done.file, done.head) == ("model.pt2", "states")
    assert [each.inputs for each in done.comparisons][-2:] == ["one token", "maximum length"]
    assert max(each.error for each in done.comparisons) < 1e-5


@pytest.mark.parametrize("pool", ["cls", "mean", "max", "mean-max"])
def test_a_pt2_file_predicts_like_the_model(pool, tmp_path):
    model, texts = tiny_model(REVIEWS, pool=pool), ["good", "the film was bad . the film was good", "a film", ""]
    done = export(model, tmp_path / "out", to="pt2")
    assert max(row.error for row in done.comparisons) < 1e-5
    predictions, expected = lightbert.load(tmp_path / "out").predict(texts), Predictor(model).predict(texts)
    for one, other in zip(predictions, expected, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_a_pt2_file_tags_like_the_model(tmp_path):
    model, texts = tiny_model(Tokens(("O", "B-X", "I-X"))), ["good", "the film was bad . the film was good", ""]
    export(model, tmp_path / "out", to="pt2")
    tags, expected = (
        [[tag["tag"] for tag in row["tags"]] for row in predictor.predict(texts)]
        for predictor in (lightbert.load(tmp_path / "out"), Predictor(model))
    )
    assert tags == expected


def test_the_beam_search_is_exported_to_onnx_only(tmp_path):
    model = tiny_model(Spans("beam", stride=4, max_query=4), inner=8, beam=5)
    with pytest.raises(InputError, match="head 'beam' can only be exported to ONNX; use --to onnx"):
        export(model, tmp_path / "out", to="pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_pt2_file_runs_without_lightbert_and_contains_no_paths_of_source_files(tmp_path):
    export(tiny_model(REVIEWS), tmp_path / "out", to="pt2")
    with zipfile.ZipFile(tmp_path / "out" / "model.pt2") as archive:
        assert not any(b".py" in archive.read(name) for name in archive.namelist())
    code = (
        "import sys, torch; run = torch.export.load(sys.argv[1]).module(); ids = torch.ones(3, 5, dtype=torch.long); "
        "print(list(run(ids, ids == 1, ids * 0)[0].shape)); sys.exit('lightbert' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out" / "model.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[3, 2]"


def test_the_command_exports_and_predicts(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    assert main(["export", str(model), "--out", str(tmp_path / "out"), "--to", "pt2"]) == 0
    assert main(["predict", str(tmp_path / "out" / "model.pt2"), "good film"]) == 0
    assert '"label"' in capsys.readouterr().out
    (tmp_path / "out" / "model.pt2").write_bytes(b"damaged")
    assert main(["predict", str(tmp_path / "out"), "good film"]) == 1
    assert "is not a .pt2 archive of lightbert" in capsys.readouterr().err
    arguments = ["export", str(model), "--out", str(tmp_path / "new"), "--to", "pt2", "--int8", "dynamic"]
    assert main(arguments) == 1
    assert "--to pt2 supports float32 only, got --int8 dynamic; use --to onnx" in capsys.readouterr().err
    arguments = ["export", str(model), "--out", str(tmp_path / "new"), "--to", "executorch", "--int8", "qat"]
    assert main(arguments) == 1
    assert "--to executorch supports --int8 dynamic only, got --int8 qat" in capsys.readouterr().err


def test_executorch_that_is_not_installed_is_an_error_that_names_it(tmp_path, monkeypatch):
    for name in ("executorch", "executorch.exir", "executorch.backends.xnnpack.partition.xnnpack_partitioner"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="export to ExecuTorch requires executorch"):
        export(tiny_model(REVIEWS), tmp_path / "out", to="executorch")
    assert list(tmp_path.iterdir()) == []


@needs_executorch
@pytest.mark.prove
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("family", "pool"), [("convbert", "cls"), ("mobilebert", "cls"), ("convbert", "mean-max")])
def test_a_pte_file_predicts_like_the_model(family, pool, tmp_path):
    model = build(replace(FAMILIES[family], depth=1), {"classify": {"labels": 2, "pool": pool}}, seed=0)
    done = export(model, tmp_path / "out", to="executorch", head="classify")
    assert done.file == "model.pte"
    assert max(each.error for each in done.comparisons) < 1e-5


@needs_executorch
@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("default")
def test_an_int8_pte_file_is_smaller_and_close_to_the_model(tmp_path):
    config = replace(FAMILIES["mobilebert"], depth=1, width=64, block_width=32, inner=256)
    model = build(config, seed=0)
    done = export(model, tmp_path / "out", to="executorch", int8="dynamic")
    assert done.precision == "int8 dynamic"
    assert done.quantized is not None
    # Two bottlenecks, query, key, value, output, the feed-forwards, the way out, and the trigrams.
    assert done.quantized.layers == 8 + 2 * config.feedforwards
    kinds = (nn.Linear, nn.Embedding)
    quantized = sum(part.weight.numel() for part in model.modules() if isinstance(part, kinds))
    others = sum(each.numel() for each in model.parameters()) - quantized
    # A byte per weight of a linear layer or a table, four for all else, and the program.
    assert done.bytes < 1.1 * (quantized + 4 * others) + 100_000
    assert min(each.cosine for each in done.comparisons) > 0.99
    assert lightbert.load(tmp_path / "out").precision == "int8 dynamic"


@needs_executorch
@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("default")
def test_an_int8_pte_file_of_mixed_attention_predicts_like_the_model(tmp_path):
    model = build(replace(FAMILIES["convbert"], depth=1), {"classify": {"labels": 2}}, seed=0)
    done = export(model, tmp_path / "out", to="executorch", head="classify", int8="dynamic")
    assert min(each.cosine for each in done.comparisons) > 0.99


def traced_family(family: str) -> torch.export.ExportedProgram:
    return exported_program(build(replace(FAMILIES[family], depth=1), seed=0), STATES, any_batch=False)


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def outputs(program: torch.export.ExportedProgram, length: int, tokens: int) -> torch.Tensor:
    ids = torch.arange(length).unsqueeze(0) % 7 + 5
    (states,) = program.module()(ids, torch.arange(length).unsqueeze(0) < tokens, ids * 0)
    return states


def test_a_rewritten_program_has_the_same_results_with_and_without_padding():
    for family in FAMILIES:
        program = traced_family(family)
        cases = [(9, 9), (9, 6), (4, 1), (4, 0)]
        expected = [outputs(program, *case) for case in cases]
        rewrite(program)
        assert not any(
            part in each for each in operators(program) for part in ("scaled_dot_product_attention", "addcmul")
        )
        for case, states in zip(cases, expected, strict=True):
            torch.testing.assert_close(outputs(program, *case), states, atol=1e-5, rtol=1e-5)


def test_each_rewrite_replaces_its_operators_and_keeps_the_results():
    for change, before, after in [
        (split_products, {"aten.addcmul_.default"}, {"aten.mul.Tensor", "aten.add.Tensor"}),
        (write_out_attention, {"aten.scaled_dot_product_attention.default"}, {"aten.bmm.default", "aten.where.Scalar"}),
        (multiply_by_masks, {"aten.masked_fill.Scalar"}, {"aten.mul.Tensor", "aten.to.dtype"}),
    ]:
        program = traced_family("convbert")
        expected = outputs(program, 9, 6)
        assert before <= set(operators(program))
        change(program)
        assert not before & set(operators(program))
        assert after <= set(operators(program))
        program.graph_module.recompile()
        torch.testing.assert_close(outputs(program, 9, 6), expected, atol=1e-6, rtol=1e-5)


def test_the_lengths_of_a_rewritten_program_stay_dynamic():
    program = traced_family("convbert")
    (result,) = (node for node in program.graph.nodes if node.op == "output")
    rewrite(program)
    products = [node.meta["val"].shape for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    assert len(products) == 2
    assert all(isinstance(shape[1], torch.SymInt) for shape in products)
    assert isinstance(result.args[0][0].meta["val"].shape[1], torch.SymInt)


class Projections(nn.Module):
    """Three layers of one input, a layer without a bias, and two of another input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 4), nn.Linear(6, 3), nn.Linear(6, 5)
        self.unbiased = nn.Linear(6, 2, bias=False)
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        middle = torch.relu(self.second(x))
        return self.first(x), self.third(x), self.unbiased(x), self.left(middle) * self.right(middle)


def traced(module: nn.Module, *inputs: Tensor) -> torch.fx.GraphModule:
    found: torch.fx.GraphModule = torch.export.export(module, inputs).module()
    return found


def layers(module: torch.fx.GraphModule) -> list[int]:
    """The width of each linear layer."""
    return [node.meta["val"].shape[-1] for node in module.graph.nodes if node.target is linear]


def test_layers_with_one_input_are_one_layer_with_the_same_result():
    x = torch.randn(2, 7, 6)
    module = traced(Projections(), x)
    expected = module(x)
    join_layers(module)
    assert sorted(layers(module)) == [2, 4, 12]
    parts = [node for node in module.graph.nodes if node.target is torch.ops.aten.slice.Tensor]
    assert sorted(part.meta["val"].shape for part in parts) == [(2, 7, width) for width in (2, 2, 3, 4, 5)]
    for found, other in zip(module(x), expected, strict=True):
        torch.testing.assert_close(found, other)


def test_a_module_without_such_layers_stays_as_it_is():
    x = torch.randn(2, 3)
    module = traced(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)), x)
    before = str(module.graph)
    join_layers(module)
    assert str(module.graph) == before


def test_queries_keys_values_and_bottlenecks_of_mobilebert_are_joined():
    config = replace(preset("mobilebert"), depth=1, width=32, block_width=16, inner=16, n_heads=2, vocab=50)
    model = build(config, seed=0).eval()
    ids = torch.randint(1, 50, (1, 6))
    module = traced(model, ids, ids > 0)
    expected, before = module(ids, ids > 0), len(layers(module))
    join_layers(module)
    # The two bottlenecks and the value read the block's input, query and key the second bottleneck.
    assert before - len(layers(module)) == 3
    torch.testing.assert_close(module(ids, ids > 0), expected, rtol=1e-4, atol=1e-4)


class Lookup(nn.Module):
    """Two tables, one of which is also the weight of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 8), nn.Embedding(2, 8)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        states = self.words(ids) + self.kinds(kinds)
        return nn.functional.linear(states, self.words.weight)


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
