"""int8 files: smaller, close to the model, and never worse than allowed."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import FAMILIES
from tiny_classifiers import tiny_model, write_tiny_model

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.data.features import padded_rows
from lightbert.deploy import quantization
from lightbert.deploy.export import MAX_LOSS, check_cosines, export
from lightbert.deploy.onnx.graph import Linear
from lightbert.deploy.onnx.lowering import Range, quantize_columns, quantize_rows
from lightbert.deploy.quantization import Activation, _channel_scales, _error, rounded
from lightbert.deploy.verification import Batch, calibration_batches, compare
from lightbert.errors import InputError
from lightbert.models import Model, build
from lightbert.nn.inference import Inference
from lightbert.tasks.example import Example, text_features
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.predict.predictor import Predictor, encoder_of
from randomised import randomised

pytestmark = needs_onnx

REVIEWS = Classify(("bad", "good"))
TEXTS = [f"{a} {b} {c}" for a in ("a", "the", "the film was a") for b in ("good", "bad") for c in ("film", ".")]
LABELS = ["good" if "good" in text else "bad" for text in TEXTS]


@pytest.fixture(scope="module")
def trained() -> Model:
    """A classifier that has learnt which word decides."""
    torch.manual_seed(0)
    model = tiny_model(REVIEWS).train()
    features = text_features([Example(text) for text in TEXTS], encoder_of(model), None)
    rows = padded_rows(features, np.arange(len(TEXTS)), int(features.lengths.max()), pad=0)
    inputs = [torch.from_numpy(each) for each in (rows.ids, rows.mask, rows.segments)]
    targets = torch.tensor([REVIEWS.labels.index(label) for label in LABELS])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(Inference(model, "classify")(*inputs).logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def calibration(model):
    return calibration_batches(model, map(Example, TEXTS), "states")


@pytest.fixture
def data(tmp_path):
    lines = [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "reviews.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return tmp_path / "reviews.tsv"


def test_weights_are_rounded_to_the_nearest_of_255_values_per_channel():
    weight = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32) * np.array([1, 10, 0.1, 1, 0])
    integers, scale = quantize_columns(weight.astype(np.float32))
    assert integers.dtype == np.int8
    assert integers.shape == weight.shape
    assert scale.shape == (5,)
    assert (np.abs(integers * scale - weight) <= scale / 2 + 1e-6).all()
    rows, scales = quantize_rows(weight.T.astype(np.float32))
    assert np.array_equal(rows, integers.T)
    assert np.array_equal(scales[:, 0], scale)


def test_zero_is_represented_exactly_and_values_are_clipped():
    for low, high in [(-1.0, 3.0), (0.5, 3.0), (-4.0, -1.0)]:
        values = Range(low, high)
        assert rounded(np.zeros(3, np.float32), values).tolist() == [0, 0, 0]
        x = np.linspace(low, high, 50, dtype=np.float32)
        assert np.abs(rounded(x, values) - x).max() <= float(values.scale) * 0.51
        assert rounded(np.float32([1e9]), values)[0] <= max(high, 0) + float(values.scale)


def test_an_outlier_channel_moves_to_the_weights():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 16)).astype(np.float32)
    x[:, 3] *= 200
    layer = Linear("layer", "x", "y", random.normal(size=(16, 8)).astype(np.float32), None)
    seen = Activation(x, x.min(0), x.max(0))
    scales = _channel_scales(seen, [layer])
    before, after = _error(seen, layer.weight, seen.full), None
    divided = seen.divided(scales)
    after = _error(divided, layer.weight * scales[:, None], divided.full)
    assert after < before / 2
    plain = np.delete(x, 3, axis=1)
    even = Linear("layer", "x", "y", np.delete(layer.weight, 3, axis=0), None)
    assert _channel_scales(Activation(plain, plain.min(0), plain.max(0)), [even]) is None


def test_static_ranges_are_clipped_where_that_pays():
    x = np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
    seen = Activation(x, x.min(0) - 20, x.max(0) + 20)
    assert seen.clipped().high < seen.full.high / 2
    assert np.square(rounded(x, seen.clipped()) - x).mean() < np.square(rounded(x, seen.full) - x).mean() / 4


@pytest.mark.parametrize(("family", "mode"), list(zip(FAMILIES, cycle(["dynamic", "static"]))))
def test_every_family_is_close_to_its_model(family, mode, tmp_path):
    model = build(replace(FAMILIES[family], depth=1), {"mlm": {}}, seed=1)
    for head in ("states", "mlm"):
        done = export(model, tmp_path / head, head=head, int8=mode)
        assert done.precision == f"int8 {mode}"
        assert min(each.cosine for each in done.comparisons) > 0.98
        assert max(each.error for each in done.comparisons) < 0.1


@pytest.mark.parametrize("family", ["bert", "convbert", "mobilebert"])
def test_onnx_runtime_multiplies_integers_in_static_files(family, tmp_path):
    import onnx
    import onnxruntime

    export(build(replace(FAMILIES[family], depth=1), seed=1), tmp_path / "out", int8="static")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    # Weights that are dequantized in every call would be far slower than float32.
    assert "DequantizeLinear" not in kinds
    assert "Gemm" not in kinds
    assert {"QGemm", "MatMulIntegerToFloat"} & set(kinds)


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_the_depthwise_convolution_of_a_span_computes_integers(mode, tmp_path):
    import onnx

    done = export(build(replace(FAMILIES["convbert"], depth=1), seed=1), tmp_path / "out", int8=mode)
    kinds = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert kinds.count("QLinearConv") == 1
    assert "Conv" not in kinds
    assert min(each.cosine for each in done.comparisons) > 0.99


def test_the_bias_of_a_channel_without_weights_is_kept(tmp_path):
    model = build(replace(FAMILIES["bert"], depth=1), seed=1)
    layer = model.blocks[0].feedforward.up
    with torch.no_grad():
        layer.weight[0] = 0
        layer.bias[0] = 3.0
    done = export(model, tmp_path / "out", int8="static")
    assert min(each.cosine for each in done.comparisons) > 0.99


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_files_are_3_5_times_smaller_with_their_tables(mode, tmp_path):
    import onnx

    model = build(replace(FAMILIES["convbert"], vocab=8000, width=128, narrow=64, inner=512), seed=0)
    full, small = export(model, tmp_path / "full"), export(model, tmp_path / "small", int8=mode)
    assert small.bytes < full.bytes / 3.5
    stored = {each.name: each for each in onnx.load(tmp_path / "small" / "model.onnx").graph.initializer}
    assert stored["embeddings.word.weight.int8"].data_type == onnx.TensorProto.INT8
    assert "embeddings.word.weight" not in stored


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_trained_model_keeps_its_predictions(mode, trained, tmp_path):
    done = export(trained, tmp_path / "out", int8=mode, calibration=calibration(trained))
    assert all(each.cosine > 0.99 for each in done.comparisons)
    expected = [each["label"] for each in Predictor(trained).predict(TEXTS)]
    assert expected == LABELS
    assert [each["label"] for each in lightbert.load(tmp_path / "out").predict(TEXTS)] == expected


@pytest.mark.parametrize(("pool", "mode"), [("mean", "dynamic"), ("max", "static"), ("mean-max", "dynamic")])
def test_a_pooled_head_is_close_to_its_model(pool, mode, tmp_path):
    model = randomised(tiny_model(Classify(tuple("abcdefgh")), pool=pool))
    done = export(model, tmp_path / "out", int8=mode)
    assert min(each.cosine for each in done.comparisons) > 0.98
    exported = lightbert.load(tmp_path / "out")
    assert exported.head_settings == model.head_settings
    for one, other in zip(exported.predict(TEXTS), Predictor(model).predict(TEXTS), strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=0.1)


def test_layers_with_large_errors_stay_in_float32_and_are_reported(trained, tmp_path, monkeypatch, capsys):
    lightbert.save(trained, tmp_path / "model")
    done = export(trained, tmp_path / "all", head="states", int8="dynamic")
    lowest = min(each.cosine for each in done.comparisons[:3])
    monkeypatch.setattr(quantization, "COSINE", lowest + 0.2 * (1 - lowest))
    arguments = ["export", str(tmp_path / "model"), "--head", "states", "--int8", "dynamic"]
    assert main([*arguments, "--out", str(tmp_path / "a"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names, errors = ([each[key] for each in report["float_layers"]] for key in ("name", "error"))
    assert 0 < len(names) <= report["layers"] // 2
    assert errors == sorted(errors, reverse=True)
    import onnx

    stored = {each.name for each in onnx.load(tmp_path / "a" / "model.onnx").graph.initializer}
    assert any(name.endswith(".int8") and "blocks" in name for name in stored)
    assert not any(f"{name}.int8" in stored for name in names)
    assert main([*arguments, "--out", str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert names[0] in printed
    assert "linear layers stay in float32" in printed


def test_a_file_that_stays_too_different_is_not_published(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(quantization, "COSINE", 1.1)
    with pytest.raises(InputError, match=r"the int8 file must be >= 1.1, got \S+ with \d+ of \d+ layers in float32"):
        export(trained, tmp_path / "out", int8="dynamic")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_of_the_metric_above_the_bound_is_an_error(trained, tmp_path):
    def measure(runtime):
        return {"accuracy": 0.9 if runtime is None else 0.894, "f1": 0.5}

    with pytest.raises(InputError, match=r"the loss of accuracy must be <= 0.5 points, got 0.60 \(0.9000 to 0.8940\)"):
        export(trained, tmp_path / "out", int8="dynamic", measure=measure)
    assert list(tmp_path.iterdir()) == []
    done = export(trained, tmp_path / "out", int8="dynamic", measure=measure, max_loss=2 * MAX_LOSS)
    assert done.metric is not None
    assert done.metric.loss == pytest.approx(0.6)


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_the_command_measures_the_metric_before_and_after(mode, trained, data, tmp_path, capsys):
    lightbert.save(trained, tmp_path / "model")
    arguments = ["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--int8", mode, "--data", str(data)]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metrics"]["accuracy_before"] == 1.0
    assert report["metrics"]["accuracy_after"] == 1.0
    assert main([*arguments, "--force"]) == 0
    assert "accuracy: 1.0000 before, 1.0000 after (+0.00 points)" in capsys.readouterr().out


def test_evaluate_measures_an_exported_model(trained, data, tmp_path, capsys):
    export(trained, tmp_path / "out", int8="dynamic")
    assert main(["evaluate", str(tmp_path / "out"), "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == 1.0


def test_states_are_calibrated_on_lines_of_text(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", None)
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    arguments = ["export", str(model), "--out", str(tmp_path / "out"), "--int8", "static"]
    assert main([*arguments, "--data", str(tmp_path / "lines.txt"), "--calibrate", "5"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--force"]) == 1
    assert "--int8 static requires texts to calibrate on; add --data FILE" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("\n")
    assert main([*arguments, "--force", "--data", str(tmp_path / "empty.txt")]) == 1
    assert "must have at least one text, got none" in capsys.readouterr().err


def test_states_are_calibrated_on_texts_of_the_given_column_only(data, tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", None)
    arguments = ["export", str(model), "--out", str(tmp_path / "out"), "--int8", "static", "--data"]
    assert main([*arguments, str(data), "--text", "body"]) == 1
    assert "has no column 'body', only 'text', 'label'; set its name with --text" in capsys.readouterr().err
    (tmp_path / "numbers.jsonl").write_text('{"text": 5}\n')
    assert main([*arguments, str(tmp_path / "numbers.jsonl")]) == 1
    assert "must have a text in 'text', got 5" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_states_of_a_fine_tuned_model_are_calibrated_on_its_columns(tmp_path):
    reading = {"text": "body", "text_b": "", "separator": ";"}
    model = tiny_model(REVIEWS)
    model.task = {**model.task, "data": reading}
    lightbert.save(model, tmp_path / "model")
    (tmp_path / "reviews.csv").write_text("topic;body\n" + "".join(f"x;{text}\n" for text in TEXTS))
    arguments = ["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--head", "states"]
    assert main([*arguments, "--int8", "static", "--data", str(tmp_path / "reviews.csv")]) == 0


def test_a_beam_search_without_a_context_has_no_candidates_to_compare(tmp_path):
    model = tiny_model(Spans("beam", stride=4, max_query=4), inner=8, beam=5)
    done = export(model, tmp_path / "out", int8="dynamic")
    assert min(each.cosine for each in done.comparisons) > 0.99
    assert not done.quantized.floats


def test_outputs_that_are_not_numbers_have_a_cosine_of_zero():
    inputs = [Batch(name, np.ones((1, 1), np.int64), np.ones((1, 1), np.bool_), np.zeros((1, 1))) for name in "ab"]
    expected, found = [[np.ones((1, 3))]] * 2, [[np.ones((1, 3))], [np.full((1, 3), np.nan)]]
    comparisons = [compare(*case, per_token=False) for case in zip(inputs, expected, found, strict=True)]
    assert [each.cosine for each in comparisons] == pytest.approx([1, 0])
    with pytest.raises(InputError, match=r"must be >= 0.99, got 0.000"):
        check_cosines(comparisons)


def test_an_int8_file_runs_in_a_process_without_torch_and_onnx(trained, tmp_path):
    export(
        trained,
        tmp_path / "out",
        int8="static",
        calibration=calibration(trained),
    )
    code = (
        "import sys, lightbert; print(lightbert.load(sys.argv[1]).predict('the good film')['label']); "
        "sys.exit(bool({'torch', 'onnx'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "good"
