"""A model whose layers were wrapped is saved; one whose layers no longer fit its config is not."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import FAMILIES, VARIANTS
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from lightbert.errors import InputError
from lightbert.models import Model, build, folder
from lightbert.nn.quantization import remove_simulation, simulate_int8


def classifier() -> Model:
    return build(VARIANTS["convbert-small"], heads={"classify": {"labels": 2}}, seed=0)


def query(model: Model) -> nn.Module:
    return model.get_submodule("blocks.0.mixer.query")


@pytest.fixture
def process_group() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compile": torch.compile,
    "data parallel": nn.DataParallel,
    "distributed": DistributedDataParallel,
    "data parallel, compiled": lambda model: torch.compile(nn.DataParallel(model)),
    "compiled, distributed": lambda model: DistributedDataParallel(torch.compile(model)),
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_a_wrapped_model_is_saved_like_the_model(tmp_path: Path, wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = classifier()
    folder.save(model, tmp_path / "plain")
    folder.save(wrap(model), tmp_path / "wrapped")
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("plain", "wrapped")]
    assert files[0] == files[1]
    folder.load(tmp_path / "wrapped")


def compile_block(model: Model) -> None:
    model.blocks[0] = torch.compile(model.blocks[0])


def prune_layer(model: Model) -> None:
    prune.l1_unstructured(query(model), "weight", 0.5)


def normalize_layer(model: Model) -> None:
    weight_norm(query(model))


def add_unknown_head(model: Model) -> None:
    model.heads["mine"] = nn.Linear(16, 2)


def remove_head(model: Model) -> None:
    del model.heads["classify"]


def remove_block(model: Model) -> None:
    model.blocks = model.blocks[:1]


def replace_layer(model: Model) -> None:
    model.heads["classify"] = build(model.config, heads={"classify": {"labels": 3}}).heads["classify"]


def halve_head(model: Model) -> None:
    model.heads.half()


CHANGES: dict[str, tuple[Callable[[Model], None], str]] = {
    "compiled block": (compile_block, r"'blocks\.0\.\S+' is missing \(\d+ tensors differ\)"),
    "pruning": (prune_layer, r"'blocks\.0\.mixer\.query\.weight' is missing \(3 tensors differ\)"),
    "weight norm": (normalize_layer, r"'blocks\.0\.mixer\.query\.weight' is missing \(3 tensors differ\)"),
    "unknown head": (add_unknown_head, r"'heads\.mine\.weight' is unexpected \(2 tensors differ\)"),
    "missing head": (remove_head, r"'heads\.classify\.\S+' is missing \(\d tensors differ\)"),
    "missing block": (remove_block, r"'blocks\.1\.\S+' is missing \(\d+ tensors differ\)"),
    "other shape": (replace_layer, r"must have the shape \[2, 16\], got \[3, 16\] \(2 tensors differ\)"),
    "two dtypes": (halve_head, r"must have one floating-point dtype, got float32 and for 'heads\.\S+' float16"),
}


@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES.keys())
def test_a_model_that_could_not_be_loaded_leaves_the_old_folder(
    tmp_path: Path, change: Callable[[Model], None], problem: str
) -> None:
    model = classifier()
    folder.save(model, tmp_path / "good")
    before = {file.name: file.read_bytes() for file in (tmp_path / "good").iterdir()}
    change(model)
    with pytest.raises(InputError) as caught:
        folder.save(model, tmp_path / "good", force=True)
    assert re.search(problem, str(caught.value))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        folder.save(model, tmp_path / "deep" / "new")
    assert {file.name: file.read_bytes() for file in (tmp_path / "good").iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["good"]


def test_the_error_for_a_changed_layer_names_the_remedy_which_works(tmp_path: Path) -> None:
    model = classifier()
    prune_layer(model)
    with pytest.raises(InputError, match=r"; undo changes of its layers, as prune\.remove does, or"):
        folder.save(model, tmp_path / "model")
    prune.remove(query(model), "weight")
    remove_block(model)
    model.config = replace(model.config, depth=1)
    folder.save(model, tmp_path / "model")
    assert torch.equal(folder.load(tmp_path / "model").state_dict()["blocks.0.mixer.query.weight"], query(model).weight)


@pytest.mark.parametrize("other", [nn.Linear(2, 2), nn.DataParallel(nn.Linear(2, 2)), None])
def test_anything_but_a_model_is_an_error(tmp_path: Path, other: nn.Module) -> None:
    with pytest.raises(InputError, match=f"model must be a lightbert model, got {type(other).__name__}; give one"):
        folder.save(other, tmp_path / "model")


def test_saving_draws_no_random_numbers(tmp_path: Path) -> None:
    model, state = classifier(), torch.get_rng_state()
    folder.save(model, tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_after_quantization_aware_training_is_saved_with_its_ranges_but_not_during_it(tmp_path: Path) -> None:
    model = classifier()
    simulate_int8(model)
    model.train()(torch.randint(0, 50, (2, 7)))
    with pytest.raises(InputError, match=r"input_range' is unexpected"):
        folder.save(model, tmp_path / "model")
    model.ranges = remove_simulation(model)
    folder.save(model, tmp_path / "model")
    assert folder.load(tmp_path / "model").ranges == model.ranges


def test_the_ranges_of_a_removed_head_are_not_saved(tmp_path: Path) -> None:
    model = build(FAMILIES["bert"], heads={"classify": {"labels": 2}})
    model.ranges = {"blocks.0.output": (-1.0, 2.0), "heads.classify.output": (-1.0, 1.0)}
    folder.save(model, tmp_path / "model")
    assert folder.load(tmp_path / "model").ranges == model.ranges
    del model.heads["classify"], model.head_settings["classify"]
    folder.save(model, tmp_path / "model")
    assert folder.load(tmp_path / "model").ranges == {"blocks.0.output": (-1.0, 2.0)}
    assert list(json.loads((tmp_path / "model" / "config.json").read_text())["ranges"]) == ["blocks.0.output"]
