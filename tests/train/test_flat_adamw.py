"""AdamW on flat buffers takes the steps of AdamW on separate tensors, up to the order of the norm's sum.

Whole runs with it have the same losses, files and restarts.
"""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from itertools import pairwise, product
from unittest import mock

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, train
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightbert.files import read_tensors
from lightbert.models import folder
from lightbert.train.flat_adamw import _piece
from lightbert.train.optim import Optimizers
from lightbert.train.settings import OptimizerSettings
from lightbert.train.step import HalfWeights, Step

TABLE, NORM, BIAS = "embeddings.word.weight", "blocks.0.norm.weight", "heads.rtd.bias"


def both_kinds(**settings):
    """Two equal models with separate tensors and with flat buffers."""
    made = []
    for kind in ("adamw", "flat"):
        torch.manual_seed(0)
        model = Parts()
        made.append((model, optimizers_of(model, kind=kind, **{"bias_correction": True} | settings)))
    return tuple(made)


def take_step(model, optimizers, seed, missing=()):
    """Apply a step with random gradients for all parameters that are trained, except the missing ones."""
    give_gradients(model, seed)
    for name, parameter in model.named_parameters():
        if name in missing or not parameter.requires_grad:
            parameter.grad = None
    norm, _ = optimizers.step()
    optimizers.zero_grad()
    return norm


def everything(model, optimizers):
    return values(model) | {name: tensor.clone() for name, tensor in optimizers.tensors().items()}


def assert_close(usual, flat):
    assert usual.keys() == flat.keys()
    for name, value in usual.items():
        torch.testing.assert_close(flat[name], value, rtol=1e-5, atol=1e-7)


@contextmanager
def recorded_calls():
    """Record the names and arguments of PyTorch's operators."""
    calls: list[tuple[str, tuple]] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append((function._schema.name.removeprefix("aten::"), args))
            return function(*args, **(kwargs or {}))

    with Recorder():
        yield calls


def test_steps_equal_those_of_separate_tensors():
    for clip, bias_correction in product((0.0, 0.5, 1e9), (True, False)):
        (model, usual), (other, flat) = both_kinds(clip=clip, bias_correction=bias_correction)
        for seed in range(4):
            norms = [take_step(*pair, seed) for pair in ((model, usual), (other, flat))]
            torch.testing.assert_close(*norms)
        assert_close(everything(model, usual), everything(other, flat))


def test_a_parameter_without_gradient_is_unchanged_and_later_continues_with_its_own_number_of_steps():
    (model, usual), (other, flat) = both_kinds(clip=0.5)
    for number, missing in enumerate([(), (TABLE, NORM), (NORM,), (), (BIAS,), ()]):
        before = everything(other, flat)
        norms = [take_step(*pair, number, missing) for pair in ((model, usual), (other, flat))]
        torch.testing.assert_close(*norms)
        after = everything(other, flat)
        unchanged = [name for name in before if torch.equal(before[name], after[name])]
        assert sorted(unchanged) == sorted(name for name in before if name.startswith(missing))
        assert_close(everything(model, usual), after)
    assert {name: int(flat.tensors()[f"{name}/step"]) for name in (TABLE, NORM, BIAS)} == {TABLE: 5, NORM: 4, BIAS: 5}


def test_rates_and_frozen_parameters_of_phases_have_the_same_effect():
    (model, usual), (other, flat) = both_kinds(clip=0.5)
    phases: list[Callable[[str], float]] = [
        lambda name: 0.0 if name.startswith("embeddings") else 1.0,
        lambda name: 0.5 if name.startswith("blocks") else 1.0,
        lambda name: 0.0 if name.startswith("heads") else 2.0,
    ]
    for number, scales in enumerate(phases):
        for trained, optimizers in ((model, usual), (other, flat)):
            optimizers.scale(scales)
            optimizers.set_rate(0.1)
            for seed in range(2):
                take_step(trained, optimizers, 10 * number + seed)
    assert_close(everything(model, usual), everything(other, flat))


def test_state_of_separate_tensors_continues_in_flat_buffers_and_back():
    for first in (0, 1):
        pairs = both_kinds(clip=0.5)
        (model, before), (other, after) = pairs[first], pairs[1 - first]
        take_step(model, before, 0)
        # The numbers of steps differ, as after a phase with frozen parameters.
        take_step(model, before, 1, missing=(TABLE, BIAS))
        other.load_state_dict(model.state_dict())
        for name, tensor in after.tensors().items():
            tensor.copy_(before.tensors()[name])
        for pair in ((model, before), (other, after)):
            take_step(*pair, 2)
        assert_close(everything(model, before), everything(other, after))


def test_a_step_is_captured_again_only_if_other_parameters_have_gradients():
    _, (model, flat) = both_kinds()
    layouts = []
    for seed, missing in enumerate([(), (), (NORM,), (NORM,), (), (TABLE,), (NORM, TABLE), ()]):
        take_step(model, flat, seed, missing)
        layouts.append(flat.layout)
    assert layouts == [0, 0, 1, 1, 1, 2, 2, 2]

    # Frozen parameters don't change the layout.
    _, (model, flat) = both_kinds()
    flat.scale(lambda name: 0.0 if name.startswith("embeddings") else 1.0)
    flat.set_rate(0.1)
    take_step(model, flat, 0)
    assert flat.layout == 0


def test_a_step_reads_the_gradients_for_the_norm_and_updates_each_group_by_one_call():
    _, (model, flat) = both_kinds(clip=0.5)
    take_step(model, flat, 0)
    give_gradients(model, seed=1)
    with recorded_calls() as calls:
        flat.step()
    updates = [args for name, args in calls if name == "_fused_adamw_"]
    decayed, others = (128 * 3, 128 * 6)
    assert [[piece.numel() for piece in args[0]] for args in updates] == [[decayed], [others]]
    assert [args[0].numel() for name, args in calls if name == "linalg_vector_norm"] == [decayed + others]
    assert [len(args[0]) for name, args in calls if name == "_foreach_copy_"] == [9]
    # Clipping has no pass of its own.
    assert {name for name, _ in calls if name.startswith("_foreach")} == {"_foreach_copy_"}


def test_a_short_range_is_split_for_more_blocks_in_one_launch():
    splits = {128: 1, 2048: 1, 2176: 2, 36 * 2048: 36, 99_968: 36, 2**21: 36, 36 * 65_536: 1, 2**24: 1}
    for size, count in splits.items():
        pieces = torch.empty(size, device="meta").split(_piece(size))
        assert len(pieces) == count, size
        assert all(piece.numel() % 128 == 0 for piece in pieces)


def test_parameters_and_state_are_aligned_and_do_not_overlap():
    _, (model, flat) = both_kinds()
    tensors = [*model.parameters(), *(value for name, value in flat.tensors().items() if "exp_avg" in name)]
    assert all(tensor.storage_offset() % 128 == 0 and tensor.is_contiguous() for tensor in tensors)
    ranges = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_only_adamw_uses_flat_buffers_and_on_a_cpu_only_if_told_to():
    for kind, told, used in (("adamw", None, False), ("adamw", True, True), ("muon", True, False)):
        assert (Optimizers(Parts(), OptimizerSettings(kind=kind), flat=told).flat is not None) is used


class Tied(nn.Module):
    """Linear layers and a norm; the second layer uses the weight of the first one, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x))))


def backward(model, seed):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))).float().square().sum()
    loss.backward()


def test_cast_gradients_are_those_of_separate_tensors():
    for parts in (1, 3):
        model, usual = Tied(), Tied()
        flat = optimizers_of(model, kind="flat")
        for step in range(2):
            for part in range(parts):
                for trained, place in ((model, flat.gradient_place), (usual, lambda parameter: None)):
                    with HalfWeights(trained, place).installed():
                        backward(trained, seed=10 * step + part)
            expected = dict(usual.named_parameters())
            for name, parameter in model.named_parameters():
                assert torch.equal(parameter.grad, expected[name].grad), (parts, name)
            flat.zero_grad()
            usual.zero_grad()


def test_cast_gradients_are_written_into_the_buffer_and_not_copied_again():
    model = Tied()
    flat = optimizers_of(model, kind="flat")
    for seed in range(2):
        with HalfWeights(model, flat.gradient_place).installed():
            backward(model, seed)
    with recorded_calls() as calls:
        flat.step()
    copied = [place.numel() for name, args in calls if name == "_foreach_copy_" for place in args[0]]
    # The norm's weight and bias, and the tied weight, whose two gradients autograd adds.
    assert sorted(copied) == [4, 4, 16]


# Whole runs, here on a CPU

WITH_BIAS = {"optimizer": {"bias_correction": True}}


def flat_buffers(wanted=True):
    return mock.patch("lightbert.train.optim.suits_flat_buffers", return_value=wanted)


def last_files(out):
    last = max((out / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    return {path.name: path for path in (*last.glob("*.safetensors"), out / "final" / "model.safetensors")}


def assert_alike(usual, flat):
    """Check that losses and tensors are close, and that the files have the same names, shapes and sizes."""
    losses, usual_losses = ([record["loss"] for record in records(out)] for out in (flat, usual))
    assert losses == pytest.approx(usual_losses, rel=1e-4)
    expected = last_files(usual)
    for name, path in last_files(flat).items():
        assert path.stat().st_size == expected[name].stat().st_size
        tensors, others = read_tensors(path), read_tensors(expected[name])
        assert tensors.keys() == others.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[key], rtol=1e-2, atol=1e-4, msg=f"{name}: {key}")
    folder.load(flat / "final")


@pytest.mark.parametrize(("half", "accumulate"), [(False, 2), (True, 1)], ids=["fp32", "bf16"])
def test_a_run_has_the_losses_and_files_of_one_with_separate_tensors(corpus, tmp_path, half, accumulate):
    for flat in (False, True):
        recipe = recipe_of(corpus, tmp_path / str(flat), steps=6, accumulate=accumulate, **WITH_BIAS)
        with flat_buffers(flat), mock.patch.object(Step, "half_precision", True) if half else nullcontext():
            train(recipe)
    assert_alike(tmp_path / "False", tmp_path / "True")


def test_stages_with_frozen_layers_have_the_losses_and_files_of_separate_tensors_also_resumed(corpus, tmp_path):
    def run(name, flat, stop_after=0):
        with flat_buffers(flat):
            train(distillation_of(corpus, tmp_path / name, **WITH_BIAS), stop_after=stop_after)

    run("separate", False)
    run("flat", True)
    assert_alike(tmp_path / "separate", tmp_path / "flat")
    for stop in (3, 8, 0):
        run("resumed", True, stop)
    assert_same_results(tmp_path / "resumed", tmp_path / "flat")
    # A checkpoint can be continued by the other kind.
    for first in (False, True):
        run(f"first {first}", first, 3)
        run(f"first {first}", not first)
        assert_alike(tmp_path / "separate", tmp_path / f"first {first}")


@pytest.mark.gpu
def test_flat_buffers_are_chosen_on_a_gpu():
    assert Optimizers(Parts().cuda(), OptimizerSettings()).flat is not None
    assert Optimizers(Parts().cuda(), OptimizerSettings(kind="lamb")).flat is None


@pytest.mark.gpu
@pytest.mark.parametrize("missing", [(), (TABLE, NORM)], ids=["all", "some missing"])
def test_a_captured_step_on_a_gpu_gives_the_bytes_of_an_eager_one_and_is_close_to_separate_tensors(missing):
    runs = []
    for kind, captured in (("adamw", False), ("flat", False), ("flat", True)):
        torch.manual_seed(0)
        model = Parts().cuda()
        optimizers = optimizers_of(model, kind=kind, bias_correction=True, clip=0.5)
        gradients = {n: torch.empty_like(p) for n, p in model.named_parameters() if n not in missing}

        def step(model=model, optimizers=optimizers, gradients=gradients):
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name].clone() if name in gradients else None
            optimizers.step()
            optimizers.zero_grad()

        def fill(seed, gradients=gradients):
            drawn = torch.Generator().manual_seed(seed)
            for gradient in gradients.values():
                gradient.copy_(torch.randn(gradient.shape, generator=drawn))

        for seed in range(2):
            fill(seed)
            step()
        graph = torch.cuda.CUDAGraph()
        if captured:
            with torch.cuda.graph(graph):
                step()
        for seed in range(2, 6):
            fill(seed)
            graph.replay() if captured else step()
        runs.append(everything(model, optimizers))
    usual, plain, replayed = runs
    assert_close(usual, plain)
    assert all(torch.equal(value, replayed[name]) for name, value in plain.items())
