"""Attention with biases for the distance between query and key (composite attention, Eq. 4 to 6)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.documents import visible_keys
from lightbert.ops.operators import dropout_seed, operator


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    by_query: Tensor | None = None,
    by_key: Tensor | None = None,
    texts: Tensor | None = None,
    outside: str = "clamp",
    dropout: float = 0.0,
) -> Tensor:
    """Softmax(q·kᵀ/√E + distance biases)·v, all [B, H, T, E] -> [B, H, T, E].

    by_query [B or 1, H, T or 1, 2R+1] is added to score (i, j) at offset j - i, by_key [B, H, T, 2R+1] at offset i - j
    of the key. Offsets beyond ±R get the outermost weight ("clamp", as released) or zero ("zero", as in the paper).
    texts [B, T]: booleans mark the keys that every query of the row attends to, at least one in each row; with integers
    a token attends to the tokens of its own document id (see :mod:`lightbert.ops.documents`).
    """
    check_outside(outside)
    offsets = {bias.shape[-1] for bias in (by_query, by_key) if bias is not None}
    same = query.shape == key.shape == value.shape and len(offsets) <= 1
    supported = same and fits(query.shape[-1], offsets.pop() if offsets else None)
    if use_triton("relative_attention", as_autocast(query), fits=supported):
        return _by_kernel(query, key, value, by_query, by_key, texts, outside, dropout)
    mask = None if texts is None else visible_keys(texts)
    bias = distance_bias(by_query, by_key, query.shape[-2], outside)
    if bias is not None:
        bias = bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def distance_bias(by_query: Tensor | None, by_key: Tensor | None, tokens: int, outside: str) -> Tensor | None:
    """Sum both kinds of distance bias -> [B or 1, H, T, T], or None when there is neither."""
    bias = None if by_query is None else _spread(by_query, tokens, outside)
    if by_key is not None:
        # Row j of by_key has the offsets i - j of key j; the transpose moves it to column j.
        column = _spread(by_key, tokens, outside).transpose(-1, -2)
        bias = column if bias is None else bias + column
    return bias


def _spread(weights: Tensor, tokens: int, outside: str) -> Tensor:
    """Spread weights [..., T or 1, 2R+1] over keys: row i gets weights[j - i + R] at key j -> [..., T, T]."""
    radius = weights.shape[-1] // 2
    place = torch.arange(tokens, device=weights.device)
    offset = place[None, :] - place[:, None]  # [T, T], j - i
    index = offset.clamp(-radius, radius) + radius
    shape = (*weights.shape[:-2], tokens, tokens)
    bias = weights.expand(*shape[:-1], -1).gather(-1, index.expand(shape))
    return bias if outside == "clamp" else bias.masked_fill(offset.abs() > radius, 0.0)


def relative_scores(
    query: Tensor,
    key: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    outside: str = "clamp",
) -> Tensor:
    """Return the scores before the softmax, in fp32 and with masked keys at -inf, for a Record."""
    # Autocast would round each score to bfloat16, which the fused path doesn't.
    with torch.autocast(query.device.type, enabled=False):
        scores: Tensor = (query.float() @ key.float().transpose(-1, -2)) * query.shape[-1] ** -0.5
    bias = distance_bias(by_query, by_key, query.shape[-2], outside)
    if bias is not None:
        scores = scores + bias
    return scores if texts is None else scores.masked_fill(~visible_keys(texts), float("-inf"))


def check_outside(outside: str) -> None:
    """Check the rule for offsets beyond ±R."""
    if outside not in ("clamp", "zero"):
        raise InputError(f"outside must be 'clamp' or 'zero', got {outside!r}")


def fits(head_width: int, offsets: int | None) -> bool:
    """Whether the kernels support heads of this width and biases for this number of offsets, if any."""
    return head_width <= 128 and (offsets is None or 3 <= offsets <= 129)


def _by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    outside: str,
    dropout: float,
) -> Tensor:
    """Call the operator, which is token-major: no copies for heads that are views of [B, T, H·E]."""
    batch, n_heads, tokens, _ = query.shape
    streams = [as_autocast(x).transpose(1, 2).flatten(2) for x in (query, key, value)]
    biases = [
        None if bias is None else bias.to(streams[0].dtype).expand(batch, n_heads, tokens, -1).contiguous()
        for bias in (by_query, by_key)
    ]
    seed = dropout_seed(dropout, query.device)
    out, _ = relative_attention_operator(*streams, *biases, texts, seed, n_heads, outside == "clamp", dropout)
    return out.unflatten(-1, (n_heads, -1)).transpose(1, 2)


_INPUTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? by_query, Tensor? by_key, Tensor? texts, Tensor? seed,"
    " int n_heads, bool clamp, float dropout"
)


def _fake(query: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    batch, tokens, _ = query.shape
    return query.new_empty(query.shape), query.new_empty((batch, inputs[6], tokens), dtype=torch.float32)


@operator(f"relative_attention({_INPUTS}) -> (Tensor, Tensor)", fake=_fake)
def relative_attention_operator(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Attention on token-major streams [B, T, H·E] with biases [B, H, T, 2R+1], and the sums of its softmax."""
    return kernels.relative_attention.forward(kernels.relative_attention.prepare(*inputs))


def _fake_backward(grad: Tensor, out: Tensor, log_sums: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(grad.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs[:5])


@operator(
    f"relative_attention_backward(Tensor grad, Tensor out, Tensor log_sums, {_INPUTS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
)
def _backward(grad: Tensor, out: Tensor, log_sums: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    call = kernels.relative_attention.prepare(*inputs)
    of = kernels.relative_attention.backward(call, grad, out, log_sums)
    # An operator returns tensors only.
    biases = (grad.new_empty(0) if bias is None else bias for bias in (of.by_query, of.by_key))
    return of.query, of.key, of.value, *biases


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, ctx.settings = inputs[:7], inputs[7:]
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    *tensors, out, log_sums = ctx.saved_tensors
    query, key, value, *biases = _backward(grad, out, log_sums, *tensors, *ctx.settings)
    biases = [None if bias is None else of_bias for bias, of_bias in zip(tensors[3:5], biases, strict=True)]
    return query, key, value, *biases, None, None, None, None, None


relative_attention_operator.register_autograd(_gradients, setup_context=_keep)
