"""No file of a model folder can run code, read files outside of the folder, or reach a Python class by name.

Every hostile file would create a marker file if anything executed it.
"""

import io
import json
import os
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_classifiers import tiny_model, write_tiny_model
from vocabularies import small_tokenizer

import lightbert
from extras import needs_executorch, needs_onnx
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.errors import InputError
from lightbert.interop.huggingface import write as write_huggingface
from lightbert.models import PRESETS, Model, build
from lightbert.tasks.kinds.classify import Classify

REVIEWS = Classify(("bad", "good"))
TEXT = "good film"


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._marker),)


def pickled(marker: Path) -> bytes:
    """The bytes of torch.save, which torch.load executes."""
    buffer = io.BytesIO()
    torch.save({"weight": Code(marker)}, buffer)
    return buffer.getvalue()


def statement(marker: Path) -> str:
    """An expression that creates the marker."""
    return f"__import__('os').mkdir({str(marker)!r})"


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where, model = tmp_path_factory.mktemp("exports"), tiny_model(REVIEWS)
    export(model, where / "pt2", to="pt2")
    return where


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write_entries(path: Path, entries: dict[str, bytes], **options: Any) -> None:
    """Write an archive as PyTorch does: entries are stored, and aligned to 64 bytes."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in entries.items():
            archive.writestr(f"model/{name}", content)


Entries = dict[str, bytes]
Attack = Callable[[Entries, Path], None]


def changed_json(entries: Entries, name: str, change: Callable[[Any], None]) -> None:
    content = json.loads(entries[name])
    change(content)
    entries[name] = json.dumps(content).encode()


def pickled_weight(entries: Entries, marker: Path) -> None:
    def change(content: Any) -> None:
        first = next(iter(content["config"].values()))
        first["use_pickle"] = True
        entries[f"data/weights/{first['path_name']}"] = pickled(marker)

    changed_json(entries, "data/weights/model_weights_config.json", change)


def constant(path_name: str, content: Callable[[Path], bytes]) -> Attack:
    def attack(entries: Entries, marker: Path) -> None:
        meta = {"path_name": path_name, "is_param": False, "use_pickle": True, "tensor_meta": None}
        entries["data/constants/model_constants_config.json"] = json.dumps({"config": {"x": meta}}).encode()
        entries[f"data/constants/{path_name}"] = content(marker)

    return attack


def added(name: str, content: Callable[[Path], bytes] = pickled) -> Attack:
    def attack(entries: Entries, marker: Path) -> None:
        entries[name] = content(marker)

    return attack


def call(target: str, *arguments: str) -> Attack:
    """A call of any function of Python at the start of the graph."""

    def attack(entries: Entries, marker: Path) -> None:
        texts = [text.replace("MARKER", str(marker)) for text in arguments]
        inputs = [{"name": "", "arg": {"as_string": text}, "kind": 1} for text in texts]
        node = {"target": target, "inputs": inputs, "outputs": [], "metadata": {}, "name": "x"}
        changed_json(
            entries,
            "models/model.json",
            lambda content: content["graph_module"]["graph"]["nodes"].insert(0, node),
        )

    return attack


def renamed_value(entries: Entries, marker: Path) -> None:
    """The name of a value, which torch.fx writes into the source code that it compiles."""
    nodes = json.loads(entries["models/model.json"])["graph_module"]["graph"]["nodes"]
    name = next(node["outputs"][0]["as_tensor"]["name"] for node in nodes if "linear" in node["target"])
    code = json.dumps(f"x = {statement(marker)} #")
    entries["models/model.json"] = entries["models/model.json"].replace(f'"{name}"'.encode(), code.encode())


def size_expression(entries: Entries, marker: Path) -> None:
    def change(content: Any) -> None:
        for value in content["graph_module"]["graph"]["tensor_values"].values():
            value["sizes"] = [{"as_expr": {"expr_str": statement(marker), "hint": None}}]

    changed_json(entries, "models/model.json", change)


def guard(entries: Entries, marker: Path) -> None:
    changed_json(entries, "models/model.json", lambda content: content.update(guards_code=[statement(marker)]))


def default_factory(entries: Entries, marker: Path) -> None:
    """A structure of inputs that imports a module by name."""
    spec = {
        "type": "collections.defaultdict",
        "context": json.dumps(
            {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []}
        ),
        "children_spec": [],
    }

    def change(content: Any) -> None:
        content["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, spec])

    changed_json(entries, "models/model.json", change)


def outside_path(entries: Entries, marker: Path) -> None:
    def change(content: Any) -> None:
        next(iter(content["config"].values()))["path_name"] = "../../../outside"

    changed_json(entries, "data/weights/model_weights_config.json", change)


PT2: dict[str, tuple[Attack, str]] = {
    "a pickled weight": (pickled_weight, "is a pickle, and unpickling can execute code"),
    "a pickled constant": (constant("tensor_0", pickled), "is a pickle"),
    "an object of TorchScript": (constant("custom_obj_0", pickled), "custom_obj_0"),
    "an opaque object": (constant("opaque_obj_0", lambda marker: pickle.dumps(Code(marker))), "opaque_obj_0"),
    "weights of an old version": (added("data/weights/model.pt"), "data/weights/model.pt"),
    "constants of an old version": (added("data/constants/model.pt"), "data/constants/model.pt"),
    "an archive of PyTorch 2.7": (added("serialized_state_dict.pt"), "serialized_state_dict.pt"),
    "a compiled library": (added("data/aotinductor/model/a.so"), "a.so"),
    "a path outside of the archive": (added("../../outside.pt"), "outside.pt"),
    "an absolute path": (added("/etc/outside.pt"), "outside.pt"),
    "weights outside of the archive": (outside_path, "not a .pt2 archive of lightbert"),
    "a call of torch.load": (call("torch.load", "MARKER"), "torch.load"),
    "a call of os.mkdir": (call("torch.os.mkdir", "MARKER"), "torch.os.mkdir"),
    "a call of exec": (call("torch.serialization.os.system", "mkdir MARKER"), "os.system"),
    "an operator that opens files": (call("torch.ops.aten.from_file.default", "MARKER"), "from_file"),
    "a library of operators": (call("torch.ops.load_library", "MARKER"), "load_library"),
    "a method of an operator": (call("_operator.methodcaller", "mkdir"), "methodcaller"),
    "an operator of a dialect": (call("#x:mkdir", "MARKER"), "#x:mkdir"),
}
HARMLESS: dict[str, Attack] = {
    "a pickle of sample inputs": added("data/sample_inputs/model.pt"),
    "a name of a value that is code": renamed_value,
    "a size that is code": size_expression,
    "a guard that is code": guard,
    "a structure that imports a module": default_factory,
}


def hostile_pt2(exports: Path, where: Path, attack: Attack) -> tuple[Path, Path]:
    """A copy of an export after an attack, and the marker."""
    folder, marker = where / "model", where / "executed"
    shutil.copytree(exports / "pt2", folder)
    entries = entries_of(folder / "model.pt2")
    attack(entries, marker)
    write_entries(folder / "model.pt2", entries)
    return folder, marker


@pytest.mark.parametrize("name", PT2)
def test_a_pt2_archive_with_more_than_tensors_and_known_operators_is_refused(exports, tmp_path, name, capsys):
    attack, message = PT2[name]
    folder, marker = hostile_pt2(exports, tmp_path, attack)
    data = tmp_path / "data.csv"
    data.write_text("text,label\ngood film,good\n")
    for command in (
        ["predict", str(folder), TEXT],
        ["predict", str(folder / "model.pt2"), TEXT],
        ["evaluate", str(folder), "--data", str(data), "--label", "label"],
        ["serve", str(folder), "--port", "0"],
        ["embed", str(folder), str(data), "--text", "text", "--out", str(tmp_path / "x.npy")],
    ):
        assert main(command) == 1, command
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError) as error:
        lightbert.load(folder).predict(TEXT)
    assert message in str(error.value)
    assert not marker.exists()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_pt2_archive_needs_only_for_torch_export_is_not_read(exports, tmp_path, name):
    folder, marker = hostile_pt2(exports, tmp_path, HARMLESS[name])
    expected = lightbert.load(exports / "pt2").predict(TEXT)
    assert lightbert.load(folder).predict(TEXT) == expected
    assert not marker.exists()


def test_a_compressed_pt2_archive_is_refused(exports, tmp_path):
    shutil.copytree(exports / "pt2", tmp_path / "model")
    entries = entries_of(tmp_path / "model" / "model.pt2")
    entries["data/weights/weight_0"] = bytes(50_000_000)
    write_entries(tmp_path / "model" / "model.pt2", entries, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="larger than the file"):
        lightbert.load(tmp_path / "model").predict(TEXT)


def training_state(folder: Path, marker: Path) -> str:
    """Files that trainings leave next to the weights."""
    names = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "optimizer.bin")
    for name in (*names, "pytorch_model.bin", "model.pkl", "tokenizer.pkl", "heads.joblib"):
        (folder / name).write_bytes(pickled(marker))
    return ""


def pickle_alone(name: str) -> Callable[[Path, Path], str]:
    def attack(folder: Path, marker: Path) -> str:
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(pickled(marker))
        return "is a pickle, which can execute code"

    return attack


def pickled_shards(folder: Path, marker: Path) -> str:
    (folder / "model.safetensors").unlink()
    (folder / "part.bin").write_bytes(pickled(marker))
    index = {"weight_map": {"weight": "part.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return "is a pickle, which can execute code"


def pickle_as_safetensors(folder: Path, marker: Path) -> str:
    (folder / "model.safetensors").write_bytes(pickled(marker))
    return "not a safetensors file"


def index_to(name: str) -> Callable[[Path, Path], str]:
    def attack(folder: Path, marker: Path) -> str:
        outside = folder.parent / "outside.safetensors"
        (folder / "model.safetensors").rename(outside)
        index = {"weight_map": {"weight": name.replace("OUTSIDE", str(outside))}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return "must name files in its folder"

    return attack


def own_classes(folder: Path, marker: Path) -> str:
    """Classes that transformers would import with trust_remote_code."""
    (folder / "modeling.py").write_text(f"{statement(marker)}\n")
    for name in ("config.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text())
        classes = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification", "AutoTokenizer")
        content["auto_map"] = dict.fromkeys(classes, "modeling.Model")
        content["trust_remote_code"] = True
        (folder / name).write_text(json.dumps(content))
    return ""


def template(folder: Path, marker: Path) -> str:
    """A template of Jinja that leaves its sandbox."""
    code = "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ cycler.__init__.__globals__.os.mkdir('MARKER') }}"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = code.replace("MARKER", str(marker))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(config["chat_template"])
    return ""


def modules(path: str) -> Callable[[Path, Path], str]:
    """Modules of sentence-transformers in a folder elsewhere."""

    def attack(folder: Path, marker: Path) -> str:
        outside = folder.parent / "outside"
        outside.mkdir()
        (outside / "config.json").write_text('{"pooling_mode": "max"}')
        content = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": path.replace("OUTSIDE", str(outside)), "type": "x.Pooling"},
        ]
        (folder / "modules.json").write_text(json.dumps(content))
        return "must name folders inside of its folder"

    return attack


def module_class(folder: Path, marker: Path) -> str:
    """A module of sentence-transformers with a class of its own."""
    (folder / "evil.py").write_text(f"{statement(marker)}\n")
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Transformer"}]))
    return ""


FOLDERS: dict[str, Callable[[Path, Path], str]] = {
    "the state of a training": training_state,
    "pytorch_model.bin": pickle_alone("pytorch_model.bin"),
    "any other .bin": pickle_alone("weights.bin"),
    "a .pt": pickle_alone("model.pt"),
    "pickled shards": pickled_shards,
    "a pickle called safetensors": pickle_as_safetensors,
    "an index with a path": index_to("../outside.safetensors"),
    "an index with an absolute path": index_to("OUTSIDE"),
    "classes in auto_map": own_classes,
    "a template": template,
    "modules with a path": modules("../outside"),
    "modules with an absolute path": modules("OUTSIDE"),
    "modules through a link": modules("link"),
    "a module with a class": module_class,
}


def tiny_encoder() -> Model:
    """An encoder with a tokenizer, of an architecture of transformers."""
    sizes = {"vocab": 13, "positions": 16, "narrow": 16, "width": 16, "depth": 1, "n_heads": 2, "inner": 32}
    model = build(replace(PRESETS["bert-tiny"], **sizes), seed=0)
    model.tokenizer = small_tokenizer()
    return model


@pytest.mark.parametrize("layout", ["ours", "transformers"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_model_folder_runs_no_code_and_reads_nothing_outside(tmp_path, layout, name, capsys, monkeypatch):
    folder, marker = tmp_path / "model", tmp_path / "executed"
    if layout == "ours":
        write_tiny_model(folder, REVIEWS)
    else:
        write_huggingface(tiny_encoder(), folder)
    if name == "modules through a link":
        (folder / "link").symlink_to(tmp_path / "outside")
    message = FOLDERS[name](folder, marker)
    monkeypatch.chdir(folder)
    commands = [["info", str(folder)], ["convert", str(folder), str(tmp_path / "converted"), "--to", "lightbert"]]
    commands += [["predict", str(folder), TEXT]] if layout == "ours" else []
    with warnings.catch_warnings():
        # Modules with a class that lightbert doesn't have.
        warnings.simplefilter("ignore")
        for command in commands:
            assert (main(command) == 0) or capsys.readouterr().err.count("\n") == 1, command
        if message and layout == "transformers":
            with pytest.raises(InputError, match=message):
                lightbert.load(folder)
        elif message:
            with pytest.raises(InputError):
                lightbert.load(folder)
        else:
            lightbert.load(folder)
    assert not marker.exists()


def own_operator(graph: Any, outside: Path) -> None:
    """An operator of a library that the file does not contain."""
    graph.graph.node[0].domain = "com.evil"
    graph.opset_import.add(domain="com.evil", version=1)


def python_operator(graph: Any, outside: Path) -> None:
    """ONNX Runtime's operator that calls Python, in builds for training."""
    graph.graph.node[0].domain, graph.graph.node[0].op_type = "com.microsoft", "PythonOp"
    graph.opset_import.add(domain="com.microsoft", version=1)


def external_data(location: str) -> Callable[[Any, Path], None]:
    """Weights in a file elsewhere."""

    def attack(graph: Any, outside: Path) -> None:
        tensor = max(graph.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        outside.write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = 1
        tensor.external_data.add(key="location", value=location.replace("OUTSIDE", str(outside)))

    return attack


ONNX = {
    "an operator of a library": own_operator,
    "an operator that calls Python": python_operator,
    "weights in another folder": external_data("../outside"),
    "weights at an absolute path": external_data("OUTSIDE"),
    "weights through a link": external_data("link"),
}


@needs_onnx
@pytest.mark.parametrize("name", ONNX)
def test_an_onnx_file_loads_no_library_and_no_file_outside(tmp_path, name, capfd):
    import onnx

    export(tiny_model(REVIEWS), tmp_path / "model")
    path = tmp_path / "model" / "model.onnx"
    if name == "weights through a link":
        (tmp_path / "model" / "link").symlink_to(tmp_path / "outside")
    graph = onnx.load(path)
    ONNX[name](graph, tmp_path / "outside")
    path.write_bytes(graph.SerializeToString())
    assert main(["predict", str(tmp_path / "model"), TEXT]) == 1
    assert "ONNX Runtime can't read" in capfd.readouterr().err


@needs_executorch
def test_a_pte_file_uses_no_backend_but_xnnpack(tmp_path):
    """Backends of other builds of ExecuTorch load libraries that a .pte contains."""
    export(tiny_model(REVIEWS), tmp_path / "model", to="executorch")
    path = tmp_path / "model" / "model.pte"
    content = path.read_bytes()
    assert b"XnnpackBackend" in content
    path.write_bytes(content.replace(b"XnnpackBackend", b"LibraryBackend"))
    with pytest.raises(InputError, match="ExecuTorch can't read"):
        lightbert.load(tmp_path / "model").predict(TEXT)
