"""`lightbert demo --zoo`: the sizes of all presets, and a padding test of each family."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lightbert.commands.info import PresetList, describe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

    from lightbert.nn.encoder import Encoder

FAMILIES = ("bert-small", "convbert-small", "composite-small", "mobilebert")
"""The baseline and one preset of each paper."""

# Lengths that need padding, shorter and longer than kernels of 9 and 17.
_LENGTHS = (23, 7, 12)
_EXTRA = 9


@dataclass(frozen=True)
class Padding:
    """The largest absolute difference of the states of a text from those of the text alone."""

    preset: str
    padded: float
    """In a batch, padded beyond the longest text."""
    packed: float
    """Packed into one row with other texts."""
    released: float | None
    """In the padded batch, with convolutions that read padding as in the released code; None without convolutions."""


@dataclass(frozen=True)
class Tour:
    """The sizes of all presets, and the padding test of each family."""

    presets: PresetList
    padding: tuple[Padding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        largest = max(max(each.padded, each.packed) for each in self.padding)
        return {
            "metrics": {"presets": len(self.presets.presets), "largest_padding_difference": largest},
            **self.presets.to_json(),
            "padding": [asdict(each) for each in self.padding],
        }

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table(
            title="Largest difference of states from those of the text alone, random weights", title_justify="left"
        )
        for column in ("preset", "padded in a batch", "packed in a row", "padded, as released"):
            table.add_column(column)
        for each in self.padding:
            released = "" if each.released is None else f"{each.released:.1e}"
            table.add_row(each.preset, f"{each.padded:.1e}", f"{each.packed:.1e}", released)
        return Group(self.presets, "", table)


def run() -> Tour:
    """Describe every preset; run one model of each family on texts alone, padded and packed."""
    from lightbert.models import PRESETS
    from lightbert.progress import progress

    counted, compared = [], []
    with progress("counting", total=len(PRESETS), unit="presets") as bar:
        for name in PRESETS:
            counted.append(describe(name))
            bar.advance()
    with progress("running", total=len(FAMILIES), unit="models") as bar:
        for name in FAMILIES:
            compared.append(compare(name))
            bar.advance()
    return Tour(PresetList(tuple(counted)), tuple(compared))


def compare(name: str) -> Padding:
    """Run a model with random weights on random texts: alone, padded and packed."""
    import torch

    from lightbert.models import build

    with torch.random.fork_rng(devices=()), torch.inference_mode():
        torch.manual_seed(0)
        model = build(name, seed=0).eval()
        texts = [torch.randint(model.table.shape[0], (length,)) for length in _LENGTHS]
        alone = [model(text[None])[0] for text in texts]
        padded = _largest_change(alone, _padded(model, texts))
        packed = _largest_change(alone, _packed(model, texts))
        released = None
        if hasattr(model.config, "padding"):
            model.released_padding = True
            released = _largest_change(alone, _padded(model, texts))
    return Padding(name, padded, packed, released)


def _padded(model: "Encoder", texts: "list[Tensor]") -> "list[Tensor]":
    import torch

    ids = torch.zeros(len(texts), max(_LENGTHS) + _EXTRA, dtype=torch.long)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    mask = torch.arange(ids.shape[1]) < torch.tensor(_LENGTHS)[:, None]
    return [states[:length] for states, length in zip(model(ids, mask), _LENGTHS, strict=True)]


def _packed(model: "Encoder", texts: "list[Tensor]") -> "list[Tensor]":
    import torch

    lengths = [*_LENGTHS, _EXTRA]
    ids = torch.cat([*texts, torch.zeros(_EXTRA, dtype=torch.long)])
    numbers = torch.tensor([*range(1, len(texts) + 1), 0]).repeat_interleave(torch.tensor(lengths))
    *states, _ = torch.split(model(ids[None], numbers[None])[0], lengths)
    return states


def _largest_change(alone: "list[Tensor]", batched: "list[Tensor]") -> float:
    return max(float((a - b).abs().max()) for a, b in zip(alone, batched, strict=True))
