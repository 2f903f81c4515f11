"""Kernels are compiled ahead in processes of their own, once, and they are those that a run calls."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from gpu_runs import write_long_documents

from lightbert import processes
from lightbert.models import build, preset
from lightbert.models.presets import generator
from lightbert.ops import backend
from lightbert.train import compilation as ahead
from lightbert.train.distributed import World

SHAPES = [(32, 128), (8, 512)]
GPU = World(0, 1, torch.device("cuda"))


def models(name="convbert-tiny", depth=3):
    """A generator and a larger model."""
    config = replace(preset(name), depth=depth)
    return [build(generator(config, 0.5), device="meta"), build(config, device="meta")]


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The arguments of the processes that are started; here, they wait for the end of their input."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 2**30, 80 * 2**30))
    monkeypatch.setattr(ahead, "version", lambda package: "3.6.0")
    running: list[subprocess.Popen[bytes]] = []
    work: list[list[Any]] = []

    def start(function, arguments, *rest):
        work.append(json.loads(json.dumps(arguments)))
        running.append(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE))
        return running[-1]

    with mock.patch.object(processes, "start", start):
        yield work
    ahead._code.cache_clear()
    assert [process for process in running if process.poll() is None] == []


def test_a_process_for_each_model_and_group_of_kernels_that_ends_with_the_body(started):
    small, large = models()
    with ahead.kernels_ahead([small, large, large], SHAPES, GPU):
        pass
    assert [described["config"]["width"] for described, *_ in started] == 3 * [large.width] + 3 * [small.width]
    assert {tuple(map(tuple, shapes)) for _, _, shapes, *_ in started} == {tuple(SHAPES)}
    names = {name for _, kernels, *_ in started for name in kernels.split(",")}
    blocks = {"dynamic_conv", "relative_attention", "depthwise", "residual_norm", "bias_gelu", "relu_feedforward"}
    assert names == {"none", *blocks}


def test_kernels_that_are_in_the_cache_need_no_process(started, tmp_path):
    with ahead.kernels_ahead(models(), SHAPES, GPU):
        pass
    (described, kernels, _, *settings), second, *rest = [*started]
    for shape in SHAPES:
        ahead._mark(str(tmp_path), described, kernels, shape, *settings).touch()
    ahead._mark(str(tmp_path), described, second[1], SHAPES[0], *settings).touch()
    started.clear()
    with ahead.kernels_ahead(models(), SHAPES, GPU):
        pass
    assert started == [[*second[:2], [[*SHAPES[1]]], *settings], *rest]


def test_the_layers_have_the_weights_of_the_run_and_disabled_kernels_are_not_compiled(started):
    for size in (1, 2):
        with ahead.kernels_ahead(models()[1:], SHAPES, World(0, size, torch.device("cuda"))):
            pass
    assert [half_weights for *_, half_weights in started] == 3 * [True] + 3 * [False]
    started.clear()
    with backend.enabling("none,depthwise,bias_gelu"), ahead.kernels_ahead(models()[1:], SHAPES, GPU):
        pass
    assert [kernels for _, kernels, *_ in started] == ["none,depthwise", "none,bias_gelu"]


def test_no_process_is_started_without_a_free_gpu_and_free_cores(started, monkeypatch):
    on_cpu, second = World(0, 1, torch.device("cpu")), World(1, 2, torch.device("cuda"))
    for world, cores, cache, threads, free in (
        (on_cpu, 16, "here", "", 80),
        (second, 16, "here", "", 80),
        (GPU, 2, "here", "", 80),
        (GPU, 16, "", "", 80),
        # Runs that share the cores, and a small GPU.
        (GPU, 16, "here", "4", 80),
        (GPU, 16, "here", "", 11),
    ):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setenv("TRITON_CACHE_DIR", cache)
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", threads)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free * 2**30, 80 * 2**30))
        with ahead.kernels_ahead(models(), SHAPES, world):
            pass
        assert started == [], (world, cores, cache, threads, free)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize(("packed", "half_weights"), [(False, True), (True, False)])
def test_two_blocks_run_forward_and_backward(packed, half_weights):
    model = build(replace(preset("convbert-tiny"), depth=3), seed=0).train()
    seen = []
    model.blocks[1].output.register_forward_pre_hook(lambda layer, inputs: seen.append(layer.bias.dtype))
    ahead.run_blocks(model, (2, 8), "none", packed=packed, half_weights=half_weights)
    assert seen == [torch.bfloat16 if half_weights else torch.float32]
    assert [all(p.grad is not None for p in block.parameters()) for block in model.blocks] == [True, True, False]


WITHOUT_HELP = """
import os, sys
os.cpu_count = lambda: 1
from lightbert.nn import fused
for head in (fused.MaskedLanguage, fused.ReplacedToken):
    del fused._FUSED[head]
from lightbert.__main__ import main
sys.exit(main())
"""
"""Too few cores to compile ahead; heads, whose kernels the run compiles by itself, without kernels."""


def compiled(cache):
    """The kernels of blocks in a cache: the name of each by its folder, a hash of code and settings."""
    kinds = ("dynamic_conv", "span_", "depthwise", "attention", "residual_norm", "bias_gelu")
    # Kernels of torch.compile, which start with "triton_", are named after the operators around them.
    ours = [path for path in cache.rglob("*.cubin") if not path.name.startswith("triton_")]
    return {path.parent.name: path.stem for path in ours if any(kind in path.name for kind in kinds)}


@pytest.mark.gpu
@pytest.mark.prove
@pytest.mark.timeout(900)
def test_the_blocks_of_a_training_run_call_no_other_kernels_of_these_kinds(tmp_path):
    # Evaluations read float32 weights, for which kernels are compiled later.
    data = write_long_documents(tmp_path / "documents", documents=40, held_out=0.0) / "data"
    settings = [
        *("model=convbert-small", "change.depth=2", "steps=3", "batch=32", "length=128", "workers=1", "dropout=0"),
        "phases=[{length=512, batch=8, steps=3}]",
    ]
    command = ["pretrain", "convbert-small-rtd", f"data={data}", f"out={tmp_path / 'run'}", "device=cuda", *settings]
    variables = {**os.environ, "LIGHTBERT_CACHE": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "run-cache")}
    subprocess.run([sys.executable, "-c", WITHOUT_HELP, *command], check=True, env=variables)
    called = compiled(tmp_path / "run-cache")
    trained = json.loads((tmp_path / "run" / "final" / "config.json").read_text())
    made = json.loads((tmp_path / "run" / "generator" / "config.json").read_text())
    work = []
    for described, group in product((trained, made), ahead._GROUPS):
        work.append([described, ",".join(("none", *group)), SHAPES, False, True])

    def compile_ahead(arguments):
        return processes.call(
            "lightbert.train.compilation:compile_kernels",
            arguments,
            report=lambda done: None,
            environment={"TRITON_CACHE_DIR": str(tmp_path / "ahead-cache")},
        )

    with ThreadPoolExecutor(len(work)) as pool:
        assert [*pool.map(compile_ahead, work)] == [""] * len(work)
    assert called
    found = compiled(tmp_path / "ahead-cache")
    assert sorted(name for key, name in called.items() if key not in found) == []
