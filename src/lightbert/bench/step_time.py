"""A model of the time of a training step, fitted to measured steps.

    time = FLOPs / rate + bytes / bandwidth + kernels · fixed time (+ all-reduce and launches on several GPUs)

FLOPs are those of matrix products, bytes those of memory-bound kernels (`bench.traffic`). The references of the
convolutions move several times the bytes of the kernels, by a fitted factor. The points are in scaling_points.toml.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightbert.bench.flops import flops
from lightbert.bench.traffic import HALF, convolution_passes, encoder_bytes, optimizer_bytes, vocabulary_bytes
from lightbert.data.batches.masking_settings import Masking
from lightbert.models import build, preset
from lightbert.models.generator import generator

POINTS = Path(__file__).with_name("scaling_points.toml")
LINK = 450e9
"""Bytes per second between GPUs, in one direction: the data sheet of NVLink on an H200, not measured."""


@dataclass(frozen=True)
class Workload:
    """A step of replaced-token detection on one GPU."""

    model: str
    batch: int
    length: int
    generator: float = 0.25
    kernels: bool = True
    """Whether ops run as Triton kernels; otherwise as compiled references."""


@dataclass(frozen=True)
class Demand:
    """What a step needs."""

    flops: float
    bytes: float
    """Without convolutions that run as references."""
    reference_bytes: float
    """The bytes that kernels would move for the convolutions that run as references."""
    kernels: float
    parameters: int


@dataclass(frozen=True)
class Point:
    """A measured step."""

    workload: Workload
    milliseconds: float
    figure: str
    entry: str
    commit: str
    fitted: bool


@dataclass(frozen=True)
class StepModel:
    """The fitted parameters."""

    rate: float
    """FLOP/s of the matrix products of a step."""
    bandwidth: float
    """Bytes per second of the memory-bound kernels, by the bytes that fused kernels would move."""
    reference_factor: float
    """The bytes that the references of convolutions move, relative to those of the kernels."""
    fixed: float
    """Seconds of a kernel that does nothing."""
    launching: float
    """Seconds that a step loses if it is not captured as a CUDA graph."""

    def milliseconds(self, work: Workload, gpus: int = 1) -> float:
        """Predict the time of a step whose batch is divided among GPUs."""
        need = demand(Workload(work.model, max(1, work.batch // gpus), work.length, work.generator, work.kernels))
        moved = need.bytes + self.reference_factor * need.reference_bytes
        alone = need.flops / self.rate + moved / self.bandwidth + need.kernels * self.fixed
        if gpus == 1:
            return 1e3 * alone
        # Every GPU sends and receives its fp32 gradients twice, except for its own share.
        reduced = 2 * 4 * need.parameters * (gpus - 1) / gpus / LINK
        return 1e3 * (alone + reduced + self.launching)


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
        work = Workload(each["model"], each["batch"], each["length"], kernels=each["kernels"])
        value = number(each["figure"])
        taken = value if each["unit"] == "ms" else 1e3 * work.batch * work.length / value
        figure = f"{each['figure']} {each['unit']}"
        found.append(Point(work, taken, figure, each["entry"], each["commit"], each["use"] == "fit"))
    return found


@cache
def demand(work: Workload) -> Demand:
    """Count what a step needs, on the meta device."""
    config = preset(work.model)
    small = build(generator(config, work.generator), heads={"mlm": {}}, device="meta")
    large = build(config, heads={"rtd": {}}, device="meta")
    tokens, predicted = work.batch * work.length, Masking().positions(work.length)
    forward = flops(large, work.length) + flops(large.heads["rtd"], work.length)
    forward += flops(small, work.length) + flops(small.heads["mlm"], predicted)
    parameters = sum(p.numel() for p in {*large.parameters(), *small.parameters()}) - small.table.numel()
    moved = encoder_bytes(large, tokens) + encoder_bytes(small, tokens)
    moved += vocabulary_bytes(work.batch * predicted, config.vocab) + optimizer_bytes(parameters)
    by_references = 0 if work.kernels else HALF * tokens * sum(map(convolution_passes, (large, small)))
    counted = number(read_points()["kernel_counts"]["kernels" if work.kernels else "references"])
    blocks = len(large.blocks) + len(small.blocks)
    # The counts are those of a model with 24 blocks, generator included.
    return Demand(3 * work.batch * forward, moved - by_references, by_references, counted * blocks / 24, parameters)


def fit(measured: Sequence[Point]) -> StepModel:
    """Fit the parameters by least squares of relative errors, to steps and to the matrix products of one of them."""
    rows, times = [], []
    for point in measured:
        need = demand(point.workload)
        rows.append([need.flops, need.bytes, need.reference_bytes, need.kernels])
        times.append(point.milliseconds / 1e3)
    part = read_points()["matmuls"]
    need = demand(Workload(part["model"], part["batch"], part["length"]))
    rows.append([need.flops, 0.0, 0.0, number(part["kernel_count"])])
    times.append(number(part["figure"]) / 1e3)
    relative = np.array(rows) / np.array(times)[:, None]
    # Columns differ by many orders of magnitude.
    scale = np.abs(relative).max(axis=0)
    solution = np.linalg.lstsq(relative / scale, np.ones(len(rows)), rcond=None)[0] / scale
    per_flop, per_byte, per_reference_byte, per_kernel = map(float, solution)
    launches = read_points()["launches"]
    slow, fast = (1024 * 128 / number(launches[name]) for name in ("plain", "captured"))
    return StepModel(1 / per_flop, 1 / per_byte, per_reference_byte / per_byte, per_kernel, slow - fast)
