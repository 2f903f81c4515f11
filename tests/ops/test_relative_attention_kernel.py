"""The relative attention kernels in many small tiles, near the diagonal and far from it, and their dropout."""

import math

import pytest
import torch
from gradients import draw
from kernels import DEVICE, MARKS, assert_exact, by_kernel, results
from torch import Tensor

from lightbert.nn.attention import SelfAttention, Terms
from lightbert.nn.mask import Mask
from lightbert.ops.backend import using
from lightbert.ops.randomness import mix
from lightbert.ops.relative_attention import relative_attention, relative_attention_operator, relative_scores

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

TOKENS, RADIUS = 67, 3


def divide_rows(monkeypatch: pytest.MonkeyPatch, queries: int, keys: int) -> None:
    """Let all kernels divide rows into tiles of this size, so that most are far from the diagonal."""
    from lightbert.ops.kernels import relative_attention as kernels

    for name in ("FORWARD", "DROPOUT_FORWARD", "BY_KEY_FORWARD", "BY_QUERY", "BY_KEY", "ROW_FORWARD", "ROW"):
        monkeypatch.setattr(kernels, name, kernels.Blocks(queries, keys, 4, 2))


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16 queries and 16 keys, which are too few for slots."""
    divide_rows(monkeypatch, 16, 16)


def streams(batch: int = 1, heads: int = 1, tokens: int = TOKENS) -> dict[str, Tensor]:
    return {name: draw(batch, heads, tokens, 5) for name in ("query", "key", "value")}


def biases(*names: str, batch: int = 1, heads: int = 1, tokens: int = TOKENS) -> dict[str, Tensor]:
    return {name: draw(batch, heads, tokens, 2 * RADIUS + 1) for name in names}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("outside", ["clamp", "zero"])
@pytest.mark.parametrize("names", [("by_query",), ("by_key",), ("by_query", "by_key")], ids="+".join)
def test_every_tile_gets_its_biases(names, outside):
    assert_exact(by_kernel(relative_attention), relative_attention, streams() | biases(*names), outside=outside)


@pytest.mark.parametrize("outside", ["clamp", "zero"])
@pytest.mark.parametrize("tiles", [(16, 32), (32, 64)], ids=str)
@pytest.mark.parametrize("names", [("by_query",), ("by_query", "by_key")], ids="+".join)
def test_every_tile_gets_its_biases_from_slots(names, tiles, outside, monkeypatch):
    divide_rows(monkeypatch, *tiles)
    given = streams(tokens=150) | biases(*names, tokens=150)
    assert_exact(by_kernel(relative_attention), relative_attention, given, outside=outside)


@pytest.mark.parametrize("outside", ["clamp", "zero"])
@pytest.mark.parametrize(
    ("tokens", "radius"), [(51, 0), (51, 15), (51, 16), (51, 32), (128, 8), (100, 31), (100, 32), (100, 70)]
)
def test_a_row_gets_its_biases_from_any_number_of_slots(tokens, radius, outside):
    """32 to 128 slots in a tile of 64 or 128 keys, or a load for each score if the band is wider than the tile."""
    given = streams(tokens=tokens) | {"by_query": draw(1, 1, tokens, 2 * radius + 1)}
    assert_exact(by_kernel(relative_attention), relative_attention, given, outside=outside)


@pytest.mark.usefixtures("small_tiles")
def test_fixed_weights_are_shared_across_batch_and_queries():
    fixed = {"by_query": draw(1, 2, 1, 2 * RADIUS + 1)}
    assert_exact(by_kernel(relative_attention), relative_attention, streams(2, 2, 35) | fixed)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("packed", [False, True])
def test_whole_tiles_of_hidden_keys_have_no_weight(packed):
    texts = torch.arange(TOKENS, device=DEVICE)[None] // 33 + 1
    texts = texts if packed else texts == 2
    assert_exact(
        by_kernel(relative_attention), relative_attention, streams() | biases("by_query", "by_key"), texts=texts
    )


@pytest.mark.parametrize("tokens", [64, 65])
def test_a_gpu_with_less_shared_memory_divides_rows_with_biases(tokens, monkeypatch):
    from lightbert.ops.kernels import relative_attention as kernels

    long_rows = []
    monkeypatch.setattr(kernels, "has_large_memory", lambda device: False)
    divided = kernels._long_rows
    monkeypatch.setattr(kernels, "_long_rows", lambda *inputs: long_rows.append(1) or divided(*inputs))
    given = streams(tokens=tokens) | biases("by_query", tokens=tokens)
    assert_exact(by_kernel(relative_attention), relative_attention, given)
    assert bool(long_rows) == (tokens > 64)


@pytest.mark.parametrize(("tokens", "radius"), [(5, 32), (5, 64), (5, 128), (51, 31), (100, 8), (100, 40), (100, 63)])
def test_wide_bands_of_queries_and_keys_are_supported(tokens, radius):
    inputs = streams(tokens=tokens) | {name: draw(1, 1, tokens, 2 * radius + 1) for name in ("by_query", "by_key")}
    assert_exact(by_kernel(relative_attention), relative_attention, inputs)


def kept(seed: int, pairs: int, tokens: int, dropout: float) -> Tensor:
    """The weights that dropout keeps, [pairs of row and head, queries, keys]."""
    token = torch.arange(tokens)
    of_query = mix(mix(token ^ seed) ^ torch.arange(pairs)[:, None])
    word = (of_query[:, :, None] ^ mix(token & ~8 ^ 0x243F6A88)) * 0x7FEB352D & 0xFFFFFFFF
    word = (word ^ (word >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    half = torch.where(token & 8 == 0, word & 0xFFFF, word >> 16)
    return (half >= round(dropout * 2**16)).to(DEVICE)


@pytest.mark.parametrize(
    "tiles", ["one tile", "small tiles", "biases of queries, two blocks", "no biases", "no biases, two blocks"]
)
def test_dropout_removes_the_same_weights_in_every_kernel(tiles, request):
    if tiles == "small tiles":
        request.getfixturevalue("small_tiles")
    batch, heads, tokens, dropout = 2, 2, 70 if "two" in tiles else 37, 0.3
    share = round(dropout * 2**16) / 2**16

    def dropped(**inputs: Tensor) -> Tensor:
        merged = [inputs[name].transpose(1, 2).flatten(2) for name in ("query", "key", "value")]
        biases = (inputs.get("by_query"), inputs.get("by_key"))
        seed = torch.tensor([11], device=DEVICE)
        out, _ = relative_attention_operator(*merged, *biases, None, seed, heads, True, dropout)
        return out

    def expected(query: Tensor, key: Tensor, value: Tensor, **biases: Tensor) -> Tensor:
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if biases:
            by_query, by_key = biases["by_query"], biases.get("by_key")
            scores = scores + relative_scores(0 * query, key, by_query, by_key, texts=None)
        keep = kept(11, batch * heads, tokens, dropout).view(batch, heads, tokens, tokens)
        return ((scores.softmax(-1) * keep / (1 - share)) @ value).transpose(1, 2).flatten(2)

    names = () if "no biases" in tiles else ("by_query",) if "of queries" in tiles else ("by_query", "by_key")
    inputs = streams(batch, heads, tokens) | biases(*names, batch=batch, heads=heads, tokens=tokens)
    assert_exact(dropped, expected, inputs)


def test_dropout_removes_independent_weights():
    """Shares of each row, column and seed, and the correlation of neighbours, are those of independent draws."""
    pairs, tokens, dropout = 8, 256, 0.1
    removed = (~kept(5, pairs, tokens, dropout)).double() - dropout
    deviation = math.sqrt(dropout * (1 - dropout))
    limit = 5 * deviation
    assert abs(removed.mean()) < limit / math.sqrt(pairs * tokens**2)
    for axes in ((0, 1), (0, 2), (1,), (2,)):
        count = math.prod(removed.shape[axis] for axis in axes)
        assert removed.mean(axes).abs().max() < limit / math.sqrt(count)
    other = (~kept(6, pairs, tokens, dropout)).double() - dropout
    shifted = [removed.roll(1, 2), removed.roll(1, 1), removed.roll(1, 0), removed.roll((1, 1), (1, 2)), other]
    for neighbour in shifted:
        assert abs((removed * neighbour).mean()) < 5 * deviation**2 / math.sqrt(pairs * tokens**2)


@pytest.mark.parametrize("dropout", [0.02, 0.1, 0.5, 0.9])
def test_the_two_keys_of_a_hash_are_removed_independently(dropout):
    """Keys j and j + 8: each has the right share, also in each head, and both together have its square."""
    pairs, tokens = 16, 256
    removed = (~kept(7, pairs, tokens, dropout)).double().view(pairs, tokens, tokens // 16, 2, 8)
    share = round(dropout * 2**16) / 2**16
    deviation = math.sqrt(share * (1 - share))
    count = tokens**2 / 2
    for keys in (removed[..., 0, :], removed[..., 1, :]):
        assert abs(keys.mean() - share) < 5 * deviation / math.sqrt(pairs * count)
        assert (keys.mean((1, 2, 3)) - share).abs().max() < 5 * deviation / math.sqrt(count)
    covariance = (removed[..., 0, :] - share) * (removed[..., 1, :] - share)
    assert abs(covariance.mean()) < 5 * deviation**2 / math.sqrt(pairs * count)
    assert covariance.mean((1, 2, 3)).abs().max() < 5 * deviation**2 / math.sqrt(count)
    # The same for the key of one hash and the other key of its neighbour.
    across = (removed[..., 0, :] - share) * (removed[..., 1, :].roll(1, -1) - share)
    assert abs(across.mean()) < 5 * deviation**2 / math.sqrt(pairs * count)


def test_the_kernel_keeps_the_right_share_of_the_weights():
    """With equal scores and values of one, a row of the result is the share of its weights that are kept, rescaled."""
    tokens, dropout = 128, 0.1
    inputs = {name: torch.zeros(1, 4, tokens, 16, device=DEVICE) for name in ("query", "key")}
    with_ones = inputs | {"value": torch.ones(1, 4, tokens, 16, device=DEVICE)}
    out = by_kernel(relative_attention)(**with_ones, dropout=dropout)[..., 0].double()
    deviation = math.sqrt(dropout / (1 - dropout))
    assert abs(out.mean() - 1) < 5 * deviation / math.sqrt(4 * tokens**2)
    assert abs(out.var() / (deviation**2 / tokens) - 1) < 5 * math.sqrt(2 / out.numel())


def test_dropout_depends_on_the_seed_of_pytorch_only():
    inputs = {name: value.float().to(DEVICE) for name, value in (streams() | biases("by_query")).items()}
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append([by_kernel(relative_attention)(**inputs, dropout=0.5) for _ in range(2)])
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])
    assert not torch.equal(runs[0][0], runs[0][1]), "two layers remove the same weights"
    assert not torch.equal(runs[0][0], runs[2][0]), "two seeds remove the same weights"


@pytest.mark.parametrize("kind", ["whole rows", "padded", "packed"])
def test_composite_attention_computes_the_same_with_the_kernel(kind):
    mixer = SelfAttention(8, 2, terms=Terms(RADIUS, True, True, key_dynamic=True, depthwise=True)).to(DEVICE)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    texts = {
        "whole rows": None,
        "padded": torch.tensor([[1] * 9 + [0] * 3, [0] * 12], dtype=torch.bool),
        "packed": torch.tensor([[1] * 5 + [2] * 4 + [0] * 3, [0] * 12]),
    }[kind]
    mask = Mask(None if texts is None else texts.to(DEVICE))

    def with_kernel(x: Tensor) -> Tensor:
        with using("triton"):
            return mixer(x.float(), mask)

    def without(x: Tensor) -> Tensor:
        return mixer.double()(x, mask)

    x = {"x": draw(2, 12, 8)}
    found = results(with_kernel, x, torch.float32, spread=False)
    found_gradients = {name: parameter.grad.double() for name, parameter in mixer.named_parameters()}
    mixer.zero_grad()
    for result, expected in zip(found, results(without, x, torch.float64, spread=False), strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-4, atol=2e-4)
    for name, parameter in mixer.named_parameters():
        torch.testing.assert_close(found_gradients[name], parameter.grad, rtol=2e-4, atol=2e-3)
