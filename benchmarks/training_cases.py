"""The work that the training benchmark times: an encoder's forward and backward pass, or a whole step."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.latency_files import transformers_encoder
from benchmarks.scaling import Workload, demand, encoder_bytes
from lightbert.data.batch import Batch
from lightbert.data.features import Features, Specials
from lightbert.data.loader import Buckets
from lightbert.data.masking_settings import Masking
from lightbert.errors import InputError
from lightbert.models import build, preset
from lightbert.models.flops import flops
from lightbert.models.presets import generator
from lightbert.nn.encoder import Encoder
from lightbert.objectives.mlm import Masker
from lightbert.objectives.rtd import ReplacedTokenDetection, SideStream
from lightbert.objectives.task import TaskObjective
from lightbert.train.compilation import compile_objective, compile_parts
from lightbert.train.cuda_graph import CudaGraphStep
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.settings import OptimizerSettings
from lightbert.train.step import HalfWeights, Step

Work = Callable[[], object]

_SPECIALS, _FIRST_WORD = Specials(pad=0, cls=2, sep=3, mask=4), 5


@dataclass(frozen=True)
class Case:
    """A model and the size of its batches; by default the forward and backward pass of the encoder.

    rtd: a whole step of replaced-token detection with its optimizer.
    overlap: its generator has a CUDA stream of its own, as in a run on one GPU.
    packed: each row contains several texts, of 5 to 60 tokens.
    finetune: steps of fine-tuning a classifier on short texts, as the training loop runs them; ``length`` is ignored.
    """

    model: str
    batch: int
    length: int = 0
    rtd: bool = False
    overlap: bool = False
    packed: bool = False
    finetune: bool = False

    @property
    def name(self) -> str:
        """Such as "convbert-small 256×128" or "convbert-small 256×128, RTD step"."""
        if self.finetune:
            return f"{self.model}, fine-tuning, batch {self.batch}"
        step = ", RTD step" if self.rtd else ""
        details = (" on two streams" if self.overlap else "") + (", packed rows" if self.packed else "")
        return f"{self.model} {self.batch}×{self.length}{step}{details}"

    @property
    def tokens(self) -> int:
        """The tokens of a batch; in fine-tuning on average and without padding."""
        return round(self.batch * float(sentence_lengths().mean())) if self.finetune else self.batch * self.length


CASES = (
    Case("convbert-small", 256, 128, rtd=True),
    Case("convbert-small", 256, 128, rtd=True, overlap=True),
    Case("convbert-small", 256, 128, rtd=True, packed=True),
    Case("convbert-small", 1024, 128, rtd=True),
    Case("convbert-small", 1024, 128, rtd=True, overlap=True),
    Case("convbert-small", 64, 512, rtd=True),
    Case("convbert-small", 128, 128, rtd=True),
    Case("bert-small", 1024, 128, rtd=True),
    Case("convbert-medium-small", 128, 128, rtd=True),
    Case("convbert-base", 128, 128, rtd=True),
    Case("convbert-small", 32, finetune=True),
    Case("convbert-small", 1024, 128),
    Case("convbert-small", 128, 128),
    Case("convbert-small", 128, 512),
    Case("bert-small", 1024, 128),
    Case("bert-small", 128, 512),
    Case("composite-small", 1024, 128),
    Case("composite-small-absolute", 1024, 128),
    Case("mobilebert", 512, 128),
    Case("convbert-base", 256, 128),
    Case("bert-base", 256, 128),
)


def matching(text: str, cases: tuple[Case, ...] = CASES) -> list[Case]:
    """The cases whose name contains a text; none is an error."""
    found = [case for case in cases if text in case.name]
    if not found:
        raise InputError(f"no case contains {text!r}; the cases are {'; '.join(case.name for case in cases)}")
    return found


def make(case: Case, device: torch.device) -> Work:
    """The work of a case in lightbert."""
    return (finetuning if case.finetune else whole_step if case.rtd else our_pass)(case, device)


def our_pass(case: Case, device: torch.device) -> Work:
    """The forward and backward pass of our encoder; on a GPU compiled and with half-precision weights, as in a run."""
    encoder = build(case.model, seed=0, device=device).train()
    if device.type == "cuda":
        compile_parts(encoder)
    return _both_passes(encoder, case, device)


def their_pass(case: Case, device: torch.device) -> Work:
    """The same in transformers, compiled as a whole on a GPU."""
    model = transformers_encoder(case.model).to(device).train().requires_grad_(True)
    if device.type == "cuda":
        model.compile(dynamic=False)
    ids = _ids(case, model, device)
    mask, segments = torch.ones_like(ids), torch.zeros_like(ids)
    return _with_gradients(model, device, lambda: model(ids, mask, segments))


def whole_step(case: Case, device: torch.device) -> Work:
    """A step of replaced-token detection: masks, generator, samples, discriminator, gradients, clipping, AdamW."""
    config = preset(case.model)
    small = build(generator(config, 0.25), heads={"mlm": {}}, seed=1)
    model = build(config, heads={"rtd": {}}, seed=0)
    masker = Masker(Masking(), _SPECIALS, vocab=config.vocab, seed=0)
    objective = ReplacedTokenDetection(small, model, masker).to(device).train()
    if case.overlap and device.type == "cuda":
        objective.generator_stream = SideStream(device)
    compile_objective(objective, "auto", device)
    optimizers = Optimizers(objective, OptimizerSettings(bias_correction=True))
    optimizers.set_rate(1e-4)
    step = Step(objective, optimizers, World(0, 1, device))
    ids = _ids(case, model, device)
    batch = Batch(
        ids=ids,
        mask=_text_numbers(case).to(device) if case.packed else torch.ones_like(ids, dtype=torch.bool),
        segments=torch.zeros_like(ids),
        rows=torch.arange(case.batch, device=device),
        step=torch.zeros((), dtype=torch.int64, device=device),
    )
    return lambda: step(batch)


def finetuning(case: Case, device: torch.device) -> Work:
    """The next step of fine-tuning: each call takes another batch."""
    return finetune_step(case.model, case.batch, _SPECIALS, device)


def matmul_flops(case: Case) -> float:
    """FLOPs of the matrix products of a batch; 0 for fine-tuning, whose batches differ."""
    if case.finetune:
        return 0.0
    if case.rtd:
        return demand(Workload(case.model, case.batch, case.length)).flops
    return 3.0 * case.batch * flops(build(case.model, device="meta"), case.length)


def moved_bytes(case: Case) -> float:
    """Bytes that the memory-bound kernels of a batch must move; 0 for fine-tuning."""
    if case.finetune:
        return 0.0
    if case.rtd:
        return demand(Workload(case.model, case.batch, case.length)).bytes
    return float(encoder_bytes(build(case.model, device="meta"), case.tokens))


def _text_numbers(case: Case) -> Tensor:
    """Number the texts of each row [B, T], from 1."""
    drawn = torch.Generator().manual_seed(1)
    starts = torch.zeros(case.batch, case.length, dtype=torch.int32)
    for row in starts:
        ends = torch.randint(5, 61, (case.length,), generator=drawn).cumsum(0)
        row[ends[ends < case.length]] = 1
    return starts.cumsum(1, dtype=torch.int32) + 1


def _both_passes(encoder: Encoder, case: Case, device: torch.device) -> Work:
    ids = _ids(case, encoder, device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    cast = HalfWeights(encoder).installed if device.type == "cuda" else nullcontext
    return _with_gradients(encoder, device, lambda: encoder(ids, mask), cast)


def _with_gradients(
    model: nn.Module,
    device: torch.device,
    forward: Callable[[], Tensor],
    cast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Work:
    """Both passes; cast: returns a context that casts the weights together, instead of each layer its own."""
    with torch.no_grad(), cast(), _autocast(device):
        direction = torch.randn_like(forward())

    def work() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        with cast():
            with _autocast(device):
                states = forward()
            states.backward(direction)

    return work


def _autocast(device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def _ids(case: Case, model: nn.Module, device: torch.device) -> Tensor:
    vocab = max(each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding))
    drawn = torch.Generator().manual_seed(0)
    return torch.randint(_FIRST_WORD, vocab, (case.batch, case.length), generator=drawn).to(device)


_ROWS, _LONGEST, _WIDTH_MULTIPLE = 8192, 66, 16


def sentence_lengths() -> NDArray[np.int64]:
    """Lengths like those of SST-2's training phrases: 14 tokens on average, at most 66."""
    drawn = np.random.default_rng(0).gamma(1.6, 6.7, _ROWS)
    lengths: NDArray[np.int64] = np.clip(np.rint(drawn) + 3, 3, _LONGEST).astype(np.int64)
    return lengths


def finetune_step(model: str, batch: int, specials: Specials, device: torch.device) -> Callable[[], object]:
    """Return a function that runs the next step, as the training loop does: batch, copy to the device, step."""
    encoder = build(model, heads={"classify": {"labels": 2}}, seed=0)
    lengths = sentence_lengths()
    drawn = np.random.default_rng(1)
    rows = [drawn.integers(5, encoder.table.shape[0], length).tolist() for length in lengths]
    features = Features.of(rows, lengths.tolist(), targets=drawn.integers(0, 2, len(rows)))
    objective = TaskObjective(encoder, "classify").to(device).train()
    world = World(0, 1, device)
    on_gpu = device.type == "cuda"
    optimizers = Optimizers(objective, OptimizerSettings(bias_correction=True))
    optimizers.set_rate(1e-5)
    step = (CudaGraphStep if on_gpu else Step)(objective, optimizers, world)
    multiple = _WIDTH_MULTIPLE if on_gpu else 1
    batches = Buckets(features, batch=batch, specials=specials, multiple=multiple, settings=world.loading(2))
    # Prepared before, so that the time is that of the steps; the loop prefetches them with threads.
    ready = itertools.cycle([batches.at(number) for number in range(batches.steps_per_epoch)])
    return lambda: step(next(ready).to(device))
