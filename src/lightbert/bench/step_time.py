"""A model of the time of a training step, fitted to measured steps.

    time = FLOPs of products / rate + FLOPs of attention / its rate + bytes / bandwidth + kernels · fixed time

and all-reduce and launches on several GPUs. Bytes are those of memory-bound kernels (`bench.traffic`) and of matrix
products (`bench.step_traffic`). The points are in scaling_points.toml.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightbert.bench.flops import flops
from lightbert.bench.step_traffic import product_bytes, unfused_bytes
from lightbert.bench.traffic import attention_bytes, cast_bytes, encoder_bytes, optimizer_bytes, vocabulary_bytes
from lightbert.data.batches.masking_settings import Masking
from lightbert.models import Model, build, preset
from lightbert.models.generator import generator

POINTS = Path(__file__).with_name("scaling_points.toml")
LINK = 450e9
"""Bytes per second between GPUs, in one direction: the data sheet of NVLink on an H200, not measured."""


@dataclass(frozen=True)
class Workload:
    """A step of replaced-token detection on one GPU; without a generator, both passes of the encoder alone."""

    model: str
    batch: int
    length: int
    generator: float = 0.25
    """The generator's width, relative to the model's."""


@dataclass(frozen=True)
class Demand:
    """What a step needs."""

    flops: float
    """Of all matrix products, those of attention included."""
    attention_flops: float
    bytes: float
    """Of the memory-bound kernels, fused."""
    further_bytes: float
    """Of matrix products, and of feed-forwards that aren't fused."""
    kernels: float
    parameters: int

    @property
    def columns(self) -> list[float]:
        """The factors of the parameters of `StepModel`, in their order."""
        moved = self.bytes + self.further_bytes
        return [self.flops - self.attention_flops, self.attention_flops, moved, self.kernels]


@dataclass(frozen=True)
class Point:
    """A measured step."""

    workload: Workload
    milliseconds: float
    entry: str
    commit: str
    fitted: bool


@dataclass(frozen=True)
class StepModel:
    """The fitted parameters."""

    rate: float
    """FLOP/s of the matrix products of a step, without attention."""
    attention_rate: float
    """FLOP/s of the products inside the kernels of attention."""
    bandwidth: float
    """Bytes per second of all kernels."""
    fixed: float
    """Seconds of a kernel that does nothing."""
    launching: float
    """Seconds that each kernel adds to a step that is not captured as a CUDA graph."""

    def parts(self, work: Workload) -> list[float]:
        """Predict the milliseconds of a step: products, attention's products, bytes, fixed time."""
        prices = (1 / self.rate, 1 / self.attention_rate, 1 / self.bandwidth, self.fixed)
        return [1e3 * amount * price for amount, price in zip(demand(work).columns, prices, strict=True)]

    def milliseconds(self, work: Workload, gpus: int = 1) -> float:
        """Predict the time of a step whose batch is divided among GPUs."""
        work = replace(work, batch=max(1, work.batch // gpus))
        alone = sum(self.parts(work))
        if gpus == 1:
            return alone
        need = demand(work)
        # Every GPU sends and receives its fp32 gradients twice, except for its own share.
        reduced = 2 * 4 * need.parameters * (gpus - 1) / gpus / LINK
        return alone + 1e3 * (reduced + self.launching * need.kernels)


@cache
def read_points() -> dict[str, Any]:
    """Read the file of measured points."""
    return tomllib.loads(POINTS.read_text(encoding="utf-8"))


def number(figure: str) -> float:
    """Parse a number as lab/LOG.md writes it."""
    return float(figure.replace(",", ""))


def points() -> list[Point]:
    """Return all measured steps."""
    found = []
    for each in read_points()["points"]:
        share = {"step": 0.25, "encoder": 0.0}[each["work"]]
        work = Workload(each["model"], each["batch"], each["length"], share)
        found.append(Point(work, number(each["figure"]), each["entry"], each["commit"], each["use"] == "fit"))
    return found


@cache
def demand(work: Workload) -> Demand:
    """Count what a step needs, on the meta device."""
    models, tokens, predicted = _models(work), work.batch * work.length, Masking().positions(work.length)
    large = models[0]
    parameters = sum(p.numel() for model in models for p in model.parameters())
    forward = sum(flops(model, work.length) for model in models)
    # FLOPs are linear in the length but for attention, which is quadratic.
    attention = sum(flops(model, 2 * work.length) for model in models) / 2 - forward
    moved = sum(encoder_bytes(model, tokens) for model in models)
    further = sum(product_bytes(model, tokens) + unfused_bytes(model, tokens) for model in models)
    if work.generator:
        small = models[1]
        rtd, mlm = large.heads["rtd"], small.heads["mlm"]
        # Both models share the tables of words.
        parameters -= small.table.numel()
        forward += flops(rtd, work.length) + flops(mlm, predicted)
        moved += vocabulary_bytes(work.batch * predicted, preset(work.model).vocab) + optimizer_bytes(parameters)
        further += product_bytes(rtd, tokens) + product_bytes(mlm, work.batch * predicted)
    moved += cast_bytes(parameters)
    return Demand(3 * work.batch * forward, 3 * work.batch * attention, moved, further, _kernels(work), parameters)


def _models(work: Workload) -> list[Model]:
    config = preset(work.model)
    if not work.generator:
        return [build(config, device="meta")]
    small = build(generator(config, work.generator), heads={"mlm": {}}, device="meta")
    return [build(config, heads={"rtd": {}}, device="meta"), small]


def _kernels(work: Workload) -> float:
    """Kernels of a step: in proportion to the tensors of parameters, each of which has products, sums and copies."""
    counted = read_points()["kernels"]
    profiled = Workload(counted["model"], work.batch, work.length)
    tensors, profiled_tensors = (
        sum(len(list(model.parameters())) for model in _models(each)) for each in (work, profiled)
    )
    return number(counted["kernel_count"]) * tensors / profiled_tensors


def fit(measured: Sequence[Point]) -> StepModel:
    """Fit the parameters by least squares of relative errors, to steps and to attention in one of them."""
    rows = [demand(point.workload).columns for point in measured]
    times = [point.milliseconds / 1e3 for point in measured]
    part = read_points()["attention"]
    work = Workload(part["model"], part["batch"], part["length"])
    moved = sum(attention_bytes(model, work.batch * work.length) for model in _models(work))
    rows.append([0.0, demand(work).attention_flops, moved, number(part["kernel_count"])])
    times.append(number(part["figure"]) / 1e3)
    relative = np.array(rows) / np.array(times)[:, None]
    # Columns differ by many orders of magnitude.
    scale = np.abs(relative).max(axis=0)
    solution = np.linalg.lstsq(relative / scale, np.ones(len(rows)), rcond=None)[0] / scale
    per_flop, per_attention_flop, per_byte, per_kernel = map(float, solution)
    return StepModel(1 / per_flop, 1 / per_attention_flop, 1 / per_byte, per_kernel, _launching())


def _launching() -> float:
    launches = read_points()["launches"]
    slow, fast = (1024 * 128 / number(launches[name]) for name in ("plain", "captured"))
    return (slow - fast) / number(read_points()["launched"]["kernel_count"])
