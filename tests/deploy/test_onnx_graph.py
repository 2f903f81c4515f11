"""ONNX graphs compute what the models compute, for every family and every head."""

from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from small import FAMILIES, POSITIONS, VARIANTS, ids, model_of
from torch import nn

from extras import needs_onnx
from lightbert.deploy.onnx.graph import SPREAD, Graph, Linear, Node, Output, Stream
from lightbert.deploy.onnx.lowering import lower
from lightbert.deploy.onnx.mask import BLOCK
from lightbert.deploy.onnx.model import graph_of
from lightbert.deploy.verification import reference
from lightbert.errors import InputError
from lightbert.models import Model, build
from lightbert.nn.inference import Inference
from lightbert.nn.norms import NoNorm
from lightbert.tasks.predict.exported import OnnxRuntime, Session
from randomised import randomised

pytestmark = needs_onnx

HEADS = {
    "mlm": {},
    "rtd": {},
    "pooler": {},
    "nsp": {},
    "classify": {"labels": 3, "hidden": "tanh"},
    "regress": {"hidden": "gelu"},
    "tokens": {"labels": 4},
    "choice": {},
    "span": {},
    "beam": {"inner": 8, "beam": 5},
}
POOLED = {
    "mean": ("classify", {"labels": 3, "pool": "mean"}),
    "max": ("regress", {"pool": "max"}),
    "mean-max": ("classify", {"labels": 3, "pool": "mean-max", "hidden": "gelu"}),
}
MOBILEBERT = replace(VARIANTS["mobilebert"], depth=2)
SHAPES = [(1, 1), (2, 2), (3, 7), (2, 17), (2, POSITIONS)]


def write_onnx(model: Model, head: str, path: Path) -> None:
    path.write_bytes(lower(*graph_of(model, head)))


def exported(model: Model, head: str, folder: Path) -> OnnxRuntime:
    write_onnx(model, head, folder / "model.onnx")
    return OnnxRuntime(folder / "model.onnx", head, threads=1)


def batch(rows: int, tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of which the first has no padding."""
    lengths = np.random.default_rng(tokens).integers(1, tokens + 1, (rows, 1))
    lengths[0] = tokens
    mask = np.arange(tokens) < lengths
    return ids(rows, tokens).numpy(), mask, torch.randint(0, 2, (rows, tokens)).numpy()


def assert_same(found: np.ndarray, expected: np.ndarray, what: object = "") -> None:
    """Check that outputs agree within 2e-5, relative to the largest output if the model has no normalization."""
    assert found.shape == expected.shape, what
    finite = np.isfinite(expected) & (np.abs(expected) < 1e30)
    assert np.array_equal(finite, np.isfinite(found) & (np.abs(found) < 1e30))
    largest = max(1.0, np.abs(expected[finite]).max(initial=0.0))
    np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=2e-5 * largest, err_msg=str(what))


def test_every_model_computes_the_same_states(tmp_path):
    for config in VARIANTS.values():
        model = model_of(replace(config, depth=1))
        runtime = exported(model, "states", tmp_path)
        for shape in SHAPES:
            inputs = batch(*shape)
            (states,) = runtime(*inputs)
            (expected,) = reference(model, "states")(*inputs)
            assert_same(states[inputs[1]], expected[inputs[1]], config)


@pytest.mark.parametrize("family", ["convbert", "composite, local"])
def test_windows_end_with_their_text_wherever_a_block_of_tokens_ends(family, tmp_path):
    model = model_of(replace(FAMILIES[family], depth=2, positions=3 * BLOCK))
    runtime = exported(model, "states", tmp_path)
    for tokens in (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1):
        rows, mask, segments = batch(3, tokens)
        # Padding at the other end, too.
        mask[1] = mask[1, ::-1]
        (states,), (expected,) = runtime(rows, mask, segments), reference(model, "states")(rows, mask, segments)
        assert_same(states[mask], expected[mask])


def test_the_indices_of_windows_are_computed_once_for_all_layers():
    kinds = {depth: _kinds(replace(VARIANTS["convbert-small"], depth=depth)) for depth in (1, 3)}
    assert {kind: kinds[1].count(kind) for kind in ("Range", "Equal", "Squeeze")} == {
        kind: kinds[3].count(kind) for kind in ("Range", "Equal", "Squeeze")
    }
    assert kinds[3].count("Softmax") == 3 * kinds[1].count("Softmax") > 0


def test_a_layer_norm_is_one_operator_with_its_scale_and_shift():
    kinds = _kinds(replace(VARIANTS["convbert-small"], depth=2))
    assert kinds.count("InstanceNormalization") == 1 + 2 * 2
    assert not {"ReduceMean", "Sqrt", "Reciprocal"} & set(kinds)


def _kinds(config):
    return [node.kind for node in graph_of(model_of(config), "states")[0].nodes if isinstance(node, Node)]


@pytest.mark.parametrize("name", ["convbert-small", "mobilebert"])
def test_released_padding_is_read(name, tmp_path):
    config = replace(VARIANTS[name], depth=1, padding="released")
    model = randomised(build(config)).requires_grad_(False)
    runtime, inputs = exported(model, "states", tmp_path), batch(3, 9)
    (found,), (expected,) = runtime(*inputs), reference(model, "states")(*inputs)
    assert_same(found, expected)
    masked = reference(randomised(build(replace(config, padding="masked"))), "states")
    assert np.abs(masked(*inputs)[0] - expected)[inputs[1]].max() > 1e-3


@pytest.mark.parametrize("head", HEADS)
def test_every_head_computes_the_same_outputs(head, tmp_path):
    model = randomised(build(replace(FAMILIES["convbert"], depth=1), {head: HEADS[head]})).requires_grad_(False)
    runtime = exported(model, head, tmp_path)
    for shape in SHAPES:
        inputs = batch(*shape)
        for found, expected in zip(runtime(*inputs), reference(model, head)(*inputs), strict=True):
            if np.issubdtype(expected.dtype, np.floating):
                assert_same(found, expected)
            else:
                # Candidates that are masked out have equal scores, so their order is arbitrary.
                assert found.shape == expected.shape
                assert np.array_equal(found[:, 0], expected[:, 0])


@pytest.mark.parametrize(("family", "pool"), list(zip(FAMILIES, cycle(POOLED))))
def test_a_pooled_head_computes_the_same_outputs_whatever_the_padding(pool, family, tmp_path):
    head, settings = POOLED[pool]
    model = randomised(build(replace(FAMILIES[family], depth=1), {head: settings})).requires_grad_(False)
    runtime = exported(model, head, tmp_path)
    for shape in SHAPES:
        inputs = batch(*shape)
        assert_same(runtime(*inputs)[0], reference(model, head)(*inputs)[0])
    ids, mask, segments = batch(3, 9)
    (together,) = runtime(ids, mask, segments)
    for row, length in enumerate(mask.sum(1)):
        alone = (slice(row, row + 1), slice(0, length))
        (found,) = runtime(ids[alone], mask[alone], segments[alone])
        assert_same(found[0], together[row])
    empty = mask & np.array([[True], [False], [True]])
    assert_same(runtime(ids, empty, segments)[0], reference(model, head)(ids, empty, segments)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_reads_one_token_leaves_out_the_others_in_the_last_block(family, tmp_path):
    config = replace(FAMILIES[family], depth=2)
    model = randomised(build(config, {"classify": {"labels": 3}, "tokens": {"labels": 3}})).requires_grad_(False)
    runtime, inputs = exported(model, "classify", tmp_path), batch(3, 7)
    for found, expected in zip(runtime(*inputs), reference(model, "classify")(*inputs), strict=True):
        assert_same(found, expected)
    assert rows_of_output_layers(model, "classify", inputs) == [21, 3]
    assert rows_of_output_layers(model, "tokens", inputs) == [21, 21]


def rows_of_output_layers(model, head, inputs):
    """The number of rows that the output projection of each block reads."""
    graph, _ = graph_of(model, head)
    layers = [node for node in graph.nodes if isinstance(node, Linear) and node.name.endswith(".output")]
    layers = [node for node in layers if node.name.startswith("blocks.")]
    session = Session(lower(graph, {node.name: Output(node.input, None) for node in layers}), threads=1)
    return [len(each) for each in session(*inputs)]


def test_keys_and_values_have_no_bias_to_add():
    graph, _ = graph_of(model_of(replace(VARIANTS["convbert-small"], depth=1)), "states")
    biased = {node.name: node.bias is not None for node in graph.nodes if isinstance(node, Linear)}
    assert biased["blocks.0.mixer.query"]
    assert not biased["blocks.0.mixer.key"]
    assert not biased["blocks.0.mixer.value"]
    # Windows at the ends of a text have taps without a value, so these weights don't sum to one.
    assert biased["blocks.0.mixer.convolution.value"]


def test_a_relu_without_its_bias_is_for_float32_only():
    model = model_of(replace(VARIANTS["mobilebert"], depth=1))
    kinds = {
        int8: [node.kind for node in graph_of(model, "states", int8=int8)[0].nodes if isinstance(node, Node)]
        for int8 in (False, True)
    }
    layers = VARIANTS["mobilebert"].feedforwards
    assert ("Relu" not in kinds[False], kinds[True].count("Relu")) == (True, layers)
    assert kinds[False].count("Max") == kinds[True].count("Max") + layers


@pytest.mark.parametrize("family", ["bert", "composite", "mobilebert", "combined"])
def test_the_mlm_head_shares_the_table_of_the_embeddings(family, tmp_path):
    import onnx

    model = randomised(build(replace(FAMILIES[family], depth=1), {"mlm": {}})).requires_grad_(False)
    inputs = batch(2, 5)
    (found,), (expected,) = exported(model, "mlm", tmp_path)(*inputs), reference(model, "mlm")(*inputs)
    assert_same(found, expected)
    stored = onnx.load(tmp_path / "model.onnx").graph.initializer
    table = model.table.numpy()
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in stored}
    copies = [name for name, array in arrays.items() if array.size == table.size and set(array.flat) == set(table.flat)]
    assert copies == ["embeddings.word.weight"]


def test_a_row_that_is_all_padding_gives_finite_states(tmp_path):
    model = model_of(FAMILIES["convbert"])
    rows, mask, segments = batch(2, 6)
    mask[1] = False
    (found,) = exported(model, "states", tmp_path)(rows, mask, segments)
    assert np.isfinite(found).all()


def test_the_file_is_valid_onnx_without_operators_of_a_vendor(tmp_path):
    import onnx

    write_onnx(model_of(FAMILIES["convbert"]), "states", tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {each.domain for each in model.opset_import} == {""}
    assert [each.name for each in model.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]


def test_the_convolution_has_no_unfolded_copy_and_no_scatter(tmp_path):
    import onnx

    write_onnx(model_of(VARIANTS["convbert-small"]), "states", tmp_path / "model.onnx")
    kinds = {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
    assert "Conv" in kinds
    assert not kinds & {"ScatterND", "ScatterElements", "GatherND", "GatherElements", "Einsum", "Loop", "Scan"}


def test_a_layer_without_an_onnx_form_is_an_error(tmp_path):
    model = build(replace(FAMILIES["bert"], depth=1), {"classify": {"labels": 2}})
    model.heads["classify"].output = nn.Sequential(model.heads["classify"].output)
    with pytest.raises(InputError, match="Sequential can't be exported to ONNX"):
        write_onnx(model, "classify", tmp_path / "model.onnx")
    assert Inference(model, "classify")(ids(1, 3)).logits.shape == (1, 2)


def scaled_model(low, high):
    """A MobileBERT whose norms have scales between low and high, and one that is zero if low is."""
    model = deepcopy(model_of(MOBILEBERT))
    generator = torch.Generator().manual_seed(0)
    for part in model.modules():
        if isinstance(part, NoNorm):
            part.weight.uniform_(low, high, generator=generator)
            part.weight[0] = low
    return model


def test_a_nonorm_adds_no_operators_to_a_block():
    graph, _ = graph_of(scaled_model(0.9, 1.1), "states")
    kinds = [node.kind for node in graph.nodes if isinstance(node, Node)]
    # One Mul of the trigrams with the mask, one of the embeddings' norm, one of the states at the end.
    assert kinds.count("Mul") == 3
    residuals = [node for node in graph.nodes if isinstance(node, Linear) and node.residual]
    # The output of attention, the feed-forwards and the output of the block.
    assert len(residuals) == MOBILEBERT.depth * (2 + MOBILEBERT.feedforwards)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (-2.0, 2.0), (0.0, 1.0), (1e-4, 3.0)])
def test_the_states_are_the_same_for_all_scales_of_a_nonorm(low, high, tmp_path):
    model, inputs = scaled_model(low, high), batch(1, 4)
    assert_same(exported(model, "states", tmp_path)(*inputs)[0], reference(model, "states")(*inputs)[0])


def test_scales_that_differ_too_much_are_applied():
    graph = Graph(torch.nn.Identity())
    near, far = (Stream("x", np.float32([1, factor]), np.zeros(2, np.float32)) for factor in (SPREAD, 2 * SPREAD))
    assert near.settled(graph) is near
    assert graph.nodes == []
    assert far.settled(graph).scale.tolist() == [1, 1]
    assert [node.kind for node in graph.nodes] == ["Mul"]
