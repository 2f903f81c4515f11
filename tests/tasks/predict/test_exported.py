"""Exported models answer like the models that they come from."""

import json
import subprocess
import sys

import numpy as np
import pytest
from test_predictor import KINDS, assert_close, texts_for
from tiny_classifiers import tiny_model, write_tiny_model

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.data.features import padded_rows
from lightbert.deploy.export import export
from lightbert.errors import InputError
from lightbert.models import add_head, build
from lightbert.nn.pooling_settings import Pooling
from lightbert.tasks.example import Example, text_features
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.predict.predictor import Predictor, encoder_of
from lightbert.tasks.predict.text_model import TextModel

pytestmark = needs_onnx

REVIEWS = Classify(("bad", "good"))


@pytest.fixture
def exported(tmp_path):
    export(tiny_model(REVIEWS), tmp_path / "out")
    return tmp_path / "out"


def test_predictions_are_those_of_the_model(tmp_path):
    for kind, settings in KINDS:
        model, texts = tiny_model(kind, **settings), texts_for(kind, 23)
        export(model, tmp_path / "out")
        expected = Predictor(model).predict(texts)
        assert_close(lightbert.load(tmp_path / "out").predict(texts), expected)
        assert_close(list(lightbert.load(tmp_path / "out" / "model.onnx").stream(texts)), expected)


def test_models_that_read_padding_are_run_without_padding(tmp_path):
    model, texts = tiny_model(REVIEWS), texts_for(REVIEWS, 9)
    model.released_padding = True
    export(model, tmp_path / "out")
    assert_close(lightbert.load(tmp_path / "out").predict(texts), Predictor(model).predict(texts))


def test_vectors_are_those_of_the_model(tmp_path):
    for pool in ["mean", "cls", "max"]:
        model = tiny_model(None)
        export(model, tmp_path / "out")
        texts = ["good film", ("a bad film", "the film was good"), "film"]
        expected = TextModel(model, model.metadata).encode(texts, pool=pool)
        found = lightbert.load(tmp_path / "out").encode(texts, pool=pool)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)
        one = lightbert.load(tmp_path / "out").encode("good film", pool=pool, normalize=True)
        assert one.shape == (16,)
        assert np.linalg.norm(one) == pytest.approx(1.0)


def test_the_command_predicts_without_torch_and_onnx(tmp_path, exported):
    folder = write_tiny_model(tmp_path / "model", REVIEWS)
    code = (
        "import sys; from lightbert.cli import main; code = main(['predict', sys.argv[1], 'good film', 'bad film']); "
        "heavy = {'torch', 'onnx', 'transformers', 'safetensors'} & set(sys.modules); "
        "sys.exit(code or ','.join(heavy) or None)"
    )
    outputs = []
    for model in (exported, exported / "model.onnx"):
        done = subprocess.run([sys.executable, "-c", code, str(model)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        outputs.append([json.loads(line) for line in done.stdout.splitlines()])
    for output in outputs:
        texts = [line.pop("text") for line in output]
        assert texts == ["good film", "bad film"]
        assert_close(output, Predictor(lightbert.load(folder)).predict(texts))


def test_python_loads_and_predicts_without_torch(exported):
    code = (
        "import sys, lightbert; print(lightbert.load(sys.argv[1]).predict('good film')['label']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(exported)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("good", "bad")


def test_vectors_of_a_model_with_a_head_are_an_error(exported):
    with pytest.raises(InputError, match="exported with the classify head and has no hidden states"):
        lightbert.load(exported).encode("good film")


def test_predictions_of_states_are_an_error(tmp_path):
    export(tiny_model(None), tmp_path / "out")
    with pytest.raises(InputError, match="has no head for a task"):
        lightbert.load(tmp_path / "out").predict("good film")


def test_damaged_foreign_and_missing_files_are_errors(exported, tmp_path, capsys):
    content = (exported / "model.onnx").read_bytes()
    (exported / "model.onnx").write_bytes(content[: len(content) // 2])
    assert main(["predict", str(exported), "good film"]) == 1
    assert "ONNX Runtime can't read" in capsys.readouterr().err
    (tmp_path / "alone.onnx").write_bytes(content)
    assert main(["predict", str(tmp_path / "alone.onnx"), "good film"]) == 1
    assert "has no config.json next to it" in capsys.readouterr().err
    (exported / "config.json").write_text('{"model_type": "bert"}')
    assert main(["predict", str(exported), "good film"]) == 1
    assert "doesn't describe an export of lightbert (KeyError: 'lightbert')" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "none.onnx"), "good film"]) == 1
    assert "none.onnx' not found" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_device_other_than_the_cpu_is_an_error(exported, tmp_path, capsys, command):
    (tmp_path / "lines.txt").write_text("good film\n")
    for device in ("cuda", "cup"):
        given = {"predict": ["good film"], "evaluate": ["--data", str(tmp_path / "lines.txt")]}[command]
        assert main([command, str(exported), *given, "--device", device]) == 1
        assert f"device must be auto or cpu with an exported model, got '{device}'" in capsys.readouterr().err
    assert main(["predict", str(exported), "good film", "--device", "cpu"]) == 0


@pytest.mark.parametrize("model", [tiny_model(None), build("composite-tiny", seed=0)], ids=["convbert", "composite"])
@pytest.mark.parametrize("command", ["info {}", "export {} --out o", "convert {} o --to hf", "analyse {} --out o.html"])
def test_commands_that_need_the_weights_ask_for_the_model_itself(model, tmp_path, capsys, command):
    export(model, tmp_path / "onnx")
    assert main(command.format(tmp_path / "onnx").split()) == 1
    sentence = f"'{tmp_path / 'onnx'}' is an exported model; give the folder of the model that it was exported from"
    assert sentence in capsys.readouterr().err


def test_a_file_with_other_inputs_is_an_error(exported):
    import onnx

    content = onnx.load(exported / "model.onnx")
    del content.graph.input[:], content.graph.node[:], content.graph.output[:], content.graph.initializer[:]
    content.graph.input.append(onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, [1]))
    content.graph.output.append(onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1]))
    content.graph.node.append(onnx.helper.make_node("Identity", ["pixels"], ["logits"]))
    onnx.save(content, exported / "model.onnx")
    with pytest.raises(InputError, match="must be attention_mask, input_ids, token_type_ids, got pixels"):
        lightbert.load(exported).predict("good film")


def sentence_encoder(*, projection):
    model = tiny_model(None)
    model.pooling = Pooling("cls", normalize=True)
    if projection:
        add_head(model, "vector", {"size": 5, "pool": "max", "activation": "tanh"}, seed=0)
        model.pooling = Pooling("max", normalize=True, projection=True, default_prompt="a", prompts={"a": "bad "})
    return model


@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("to", ["onnx", "pt2"])
def test_a_file_of_a_sentence_encoder_computes_its_vectors(to, projection, tmp_path):
    import onnxruntime

    model = sentence_encoder(projection=projection)
    assert export(model, tmp_path / "out", to=to).head == "vector"
    expected = TextModel(model, model.metadata).encode(["the good film", "a bad film ."], prompt="")
    exported = lightbert.load(tmp_path / "out")
    np.testing.assert_allclose(exported.encode(["the good film", "a bad film ."], prompt=""), expected, atol=1e-5)
    with pytest.raises(InputError, match=r"normalize must be true with .* export the model again with --head states"):
        exported.encode("film", normalize=False)
    with pytest.raises(InputError, match="has no hidden states; export the model again with --head states"):
        exported.encode("film", pool="mean")
    if to == "onnx":
        features = text_features([Example("the good film"), Example("a bad film .")], encoder_of(model), None)
        rows = padded_rows(features, np.arange(2), 8, pad=0)
        session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
        mask = rows.mask.astype(np.int64)
        inputs = {"input_ids": rows.ids, "attention_mask": mask, "token_type_ids": rows.segments}
        (vectors,) = session.run(["sentence_embedding"], inputs)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize("head", ["", "states"])
@pytest.mark.parametrize("projection", [False, True])
def test_embed_writes_the_vectors_of_the_model_without_torch(tmp_path, projection, head):
    model = sentence_encoder(projection=projection)
    export(model, tmp_path / "out", head=head)
    assert (tmp_path / "out" / "modules.json").is_file() == (head == "states")
    if head and projection:
        with pytest.raises(InputError, match="has no projected vectors; export the model again with --head vector"):
            lightbert.load(tmp_path / "out").encode("film")
        return
    (tmp_path / "my.txt").write_text("good film\na bad film\n")
    arguments = ["embed", str(tmp_path / "out"), str(tmp_path / "my.txt"), "--out", str(tmp_path / "x.npy")]
    code = f"import sys; from lightbert.cli import main; sys.exit(main({arguments}) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = TextModel(model, model.metadata).encode(["good film", "a bad film"])
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-5)
