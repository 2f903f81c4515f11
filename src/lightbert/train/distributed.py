"""One process or many: what torchrun tells us, and the few sums that processes share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from lightbert.data.batches.prefetch import LoaderSettings
from lightbert.errors import InputError


@dataclass(frozen=True)
class World:
    """The place of this process among all, and its device."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether any process says yes; all processes must ask."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)).item() > 0)

    def broadcast(self, number: float) -> float:
        """The first process's number, for all."""
        if self.size == 1:
            return number
        shared = torch.tensor(number if self.is_main else 0.0, dtype=torch.double, device=self.device)
        return float(self.sum(shared).item())

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def loading(self, workers: int) -> LoaderSettings:
        """How this process gets its share of every batch, with so many threads that prefetch."""
        return LoaderSettings(self.rank, self.size, workers, pin=self.device.type == "cuda")


def resolve_device(name: str) -> torch.device:
    """The device of a recipe: "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} is not there: this PyTorch sees no GPU; use device=cpu")
    return device


@contextmanager
def process_group(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, or be alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, resolve_device(device))
        return
    place = resolve_device(device)
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, place)
    finally:
        dist.destroy_process_group()
