"""Every model equals its paper in `papers` in float64: states and gradients."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from small import VOCAB, small
from torch import Tensor

from lightbert.models import PRESETS, Config, build
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert
from lightbert.nn.encoder import Encoder
from lightbert.papers.bert import Weights, bert, mlm_logits, rtd_logits
from lightbert.papers.composite import composite
from lightbert.papers.convbert import convbert
from lightbert.papers.mobilebert import mobilebert

TOKENS = 13
# One text per row: full, padded on the right and on the left, with gaps, and of one token.
KEEP = torch.stack(
    [
        torch.ones(TOKENS, dtype=torch.bool),
        torch.arange(TOKENS) < 9,
        torch.arange(TOKENS) >= 4,
        torch.arange(TOKENS) % 4 != 2,
        torch.arange(TOKENS) == 12,
    ]
)
# Texts packed into rows, with padding after, before and between them.
PACKED = torch.tensor([[1] * 5 + [2] * 7 + [3], [1] * 2 + [2] * 9 + [0] * 2, [0] + [1] * 4 + [0] + [2] * 7])


def variants() -> dict[str, Config]:
    """All presets with reduced sizes, and the options that no preset uses; each model once, by its first name."""
    models = {name: small(config) for name, config in PRESETS.items()}
    terms, local, mixed = models["composite-small"], models["composite-small-convbert"], models["convbert-small"]
    models["composite, zero outside"] = replace(terms, outside="zero")
    models["composite, every term"] = replace(terms, key_dynamic=True, depthwise=True, convolved="qkv", positions=24)
    models["composite, every term, zero outside"] = replace(models["composite, every term"], outside="zero")
    models["composite, local by key"] = replace(local, local="key")
    models["convbert, dynamic, grouped"] = replace(mixed, convolution="dynamic", groups=2)
    models["convbert, conventional, grouped"] = replace(mixed, convolution="conventional", groups=2)
    for ratio in (1, 4, 8):
        models[f"convbert, head ratio {ratio}"] = replace(mixed, head_ratio=ratio)
    models["convbert, kernel of one"] = replace(mixed, kernel=1)
    models["convbert, kernel longer than the text"] = replace(mixed, kernel=31)
    models["convbert, one head"] = replace(mixed, n_heads=1)
    for source, norm in product(("shared", "wide", "narrow"), ("none", "layer")):
        models[f"mobilebert, {source}, {norm} norm"] = replace(models["mobilebert"], mixer_input=source, norm=norm)
    models["mobilebert, one relu6 feed-forward"] = replace(models["mobilebert"], feedforwards=1, activation="relu6")
    return {name: config for config, name in {config: name for name, config in reversed(models.items())}.items()}


MODELS = variants()
RELEASED = {
    name: replace(config, padding="released")
    for name, config in MODELS.items()
    if isinstance(config, ConvBert | MobileBert)
}


def paper_states(config: Config, weights: Weights, ids: Tensor, keep: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the states of a config by its paper's functions."""
    common = {
        "keep": keep,
        "segments": segments,
        "depth": config.depth,
        "n_heads": config.n_heads,
        "activation": config.activation,
        "eps": config.eps,
    }
    match config:
        case Bert():
            return bert(weights, ids, **common)
        case ConvBert():
            released = config.padding == "released"
            kinds = {"head_ratio": config.head_ratio, "convolution": config.convolution}
            return convbert(weights, ids, **common, **kinds, released_padding=released)
        case Composite():
            return composite(weights, ids, **common, outside=config.outside, local=config.local)
        case MobileBert():
            released = config.padding == "released"
            kinds = {"feedforwards": config.feedforwards, "mixer_input": config.mixer_input, "norm": config.norm}
            return mobilebert(weights, ids, **common, **kinds, released_padding=released)
    raise AssertionError(config)


def randomised(config: Config, heads: dict[str, dict[str, object]] | None = None) -> Encoder:
    """Build a model in float64 with random weights, biases, norms and padding embeddings."""
    model = build(config, heads).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float("norm.weight" in name), std=0.2)
    return model


def texts(rows: int) -> tuple[Tensor, Tensor]:
    """Ids, including 0, and segments."""
    return torch.randint(0, VOCAB, (rows, TOKENS)), torch.randint(0, 2, (rows, TOKENS))


def assert_equals_paper(config: Config, keep: Tensor | None) -> None:
    """Return the states of real tokens and the gradients of every parameter."""
    model = randomised(config)
    ids, segments = texts(rows=len(KEEP))
    real = torch.ones_like(KEEP) if keep is None else keep
    probe = torch.randn(int(real.sum()), config.width, dtype=torch.float64)

    weights = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    expected = paper_states(config, weights, ids, keep, segments)[real]
    states = model(ids, keep, segments)[real]
    torch.testing.assert_close(states, expected, rtol=1e-9, atol=1e-9)

    wanted = torch.autograd.grad((expected * probe).sum(), list(weights.values()))
    found = torch.autograd.grad((states * probe).sum(), list(model.parameters()))
    # Gradients that cancel, such as those of a key's bias, leave rounding errors of the size of their terms.
    noise = 1e-12 * max(gradient.abs().max().item() for gradient in wanted)
    for name, ours, theirs in zip(weights, found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=noise, msg=lambda text, name=name: f"{name}: {text}")


def test_unpadded_texts_have_the_states_and_gradients_of_the_paper(subtests: pytest.Subtests) -> None:
    for name in MODELS:
        with subtests.test(name=name):
            assert_equals_paper(MODELS[name], keep=None)


def test_padded_texts_have_the_states_and_gradients_of_the_paper(subtests: pytest.Subtests) -> None:
    for name in MODELS:
        with subtests.test(name=name):
            assert_equals_paper(MODELS[name], KEEP)


def test_released_padding_matches_the_paper(subtests: pytest.Subtests) -> None:
    for name in RELEASED:
        with subtests.test(name=name):
            assert_equals_paper(RELEASED[name], KEEP)


def test_packed_texts_have_the_states_of_the_paper_for_each_text(subtests: pytest.Subtests) -> None:
    for name in MODELS:
        with subtests.test(name=name):
            config = MODELS[name]
            model = randomised(config)
            weights = dict(model.named_parameters())
            ids, segments = texts(rows=len(PACKED))
            states = model(ids, PACKED, segments)
            for row, number in product(range(len(PACKED)), (1, 2, 3)):
                own = PACKED[row] == number
                if own.any():
                    alone = paper_states(config, weights, ids[row : row + 1, own], None, segments[row : row + 1, own])
                    torch.testing.assert_close(states[row, own], alone[0], rtol=1e-9, atol=1e-9)


def test_pretraining_heads_have_the_logits_of_the_paper(subtests: pytest.Subtests) -> None:
    for name in ("bert-small", "convbert-small", "composite-small", "mobilebert", "ib-bert-large"):
        with subtests.test(name=name):
            config = small(PRESETS[name])
            model = randomised(config, heads={"mlm": {}, "rtd": {}})
            states = model(texts(rows=2)[0])
            weights = dict(model.named_parameters())
            words = mlm_logits(weights, states, activation=config.activation, eps=config.eps)
            torch.testing.assert_close(model.heads["mlm"](states, model.table), words, rtol=1e-9, atol=1e-9)
            replaced = rtd_logits(weights, states, activation=config.activation)
            torch.testing.assert_close(model.heads["rtd"](states), replaced, rtol=1e-9, atol=1e-9)
