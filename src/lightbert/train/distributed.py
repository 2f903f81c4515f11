"""Distributed training under torchrun: the process group and its collectives; FSDP2 for large models.

A sharded tensor is a DTensor: it has the full shape and stores one shard. Files store full tensors, so that a
checkpoint doesn't depend on the number of processes. PyTorch's modules for sharding take a second to import, so they
are imported inside the functions that need them.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lightbert.data.loader import LoaderSettings
from lightbert.errors import InputError
from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class World:
    """The rank of this process, the number of processes, and the device."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which writes the files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process; every process must call this."""
        return self.total(float(flag)) > 0

    def total(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        if self.size == 1:
            return number
        return float(self.sum(torch.tensor(number, dtype=torch.double, device=self.device)).item())

    def broadcast(self, number: float) -> float:
        """Return the main process's number on every process."""
        return self.total(number if self.is_main else 0.0)

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def loading(self, workers: int) -> LoaderSettings:
        """Return the loader settings of this process: its share of each batch, prefetched by ``workers`` threads."""
        return LoaderSettings(self.rank, self.size, workers, pin=self.device.type == "cuda")


def resolve_device(name: str) -> torch.device:
    """Return a device by name; "auto" is the GPU if available, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not supported; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} is not available: PyTorch finds no GPU; use cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} not found: PyTorch finds {torch.cuda.device_count()} GPUs; use cuda")
    return device


@contextmanager
def process_group(device: str) -> Iterator[World]:
    """Join torchrun's process group; without torchrun, yield a world of one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, resolve_device(device))
        return
    local = resolve_device(device)
    if local.type == "cuda":
        local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if local.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, local)
    finally:
        dist.destroy_process_group()


def shard(objective: Objective, world: World) -> None:
    """Shard the parameters in place: a block is gathered when it runs, everything else for the whole step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for model in objective.modules():
        if isinstance(model, Encoder):
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def is_sharded(module: nn.Module) -> "TypeGuard[FSDPModule]":
    """Whether the parameters of a module are sharded."""
    return hasattr(module, "unshard")


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor that may be sharded; every process must call this."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process stores."""
    return tensor.to_local() if _is_sharded(tensor) else tensor


def gather(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Gather tensors in host memory on the main process; other processes get an empty dict."""
    gathered = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if world.is_main:
            gathered[name] = full.cpu()
    return gathered


@torch.no_grad()
def fill(target: Tensor, value: Tensor) -> None:
    """Copy a full tensor, present on every process, into one that may be sharded."""
    if _is_sharded(target):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(value)


def _is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    return hasattr(tensor, "full_tensor")
