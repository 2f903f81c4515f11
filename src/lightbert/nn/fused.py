"""Kernels for models on a GPU: `install` gives the parts of a model classes that compute the same with fewer kernels.

Parameters, their names and hooks stay as they are, and on a CPU the parts compute what they computed before. A layer is
computed from its parameters, instead of being called, only if it `is_plain`: adapters, quantized layers and layers with
hooks are called. Which kernels run is decided by the ops.
"""

from typing import NamedTuple, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.attention import SelfAttention, keeps_scores
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.convolution import DynamicConvolution, SpanConvolution
from lightbert.nn.embeddings import Embeddings, TrigramEmbeddings
from lightbert.nn.feedforward import FeedForward, GroupedLinear
from lightbert.nn.heads import MaskedLanguage, ReplacedToken
from lightbert.nn.local import LocalAttention
from lightbert.nn.mask import Mask
from lightbert.nn.norms import NoNorm
from lightbert.nn.record import Record
from lightbert.ops import bias_gelu as gelu
from lightbert.ops import joined_attention as joined
from lightbert.ops import relu_feedforward as narrow
from lightbert.ops import residual_norm as residual
from lightbert.ops.backend import as_autocast, on_gpu
from lightbert.ops.dynamic_conv import PADDING
from lightbert.ops.embedding import embedding
from lightbert.ops.grouped_linear import grouped_product
from lightbert.ops.mixed_heads import mixed_heads

_LARGE = 2**27
"""Elements, 256 MiB in half precision: from this size on, activations are computed again in the backward pass. In small
batches, where memory is not scarce, that would only take time."""

_Layer = TypeVar("_Layer", bound=nn.Module)
_Layers = tuple[nn.Linear, nn.Linear, nn.Linear]
"""Those of queries, keys and values."""


def install(model: nn.Module) -> None:
    """Let the parts of a model use kernels, in place."""
    for part in model.modules():
        part.__class__ = _FUSED.get(type(part), type(part))


def install_on_gpu(model: nn.Module) -> None:
    """Install the kernels if the model is on a GPU; called when a model is moved, and when parts are added."""
    if any(parameter.is_cuda for parameter in model.parameters()):
        install(model)


# Layers


def is_plain(layer: nn.Module, kind: type[_Layer]) -> TypeGuard[_Layer]:
    """Whether a layer computes exactly what its class does, with all of its parameters.

    False if it is of another class, even a subclass (an adapter, a quantized or parametrized layer), has hooks or a
    replaced ``forward``, lacks a parameter, or its parameters aren't plain floating-point tensors.
    """
    if type(layer) is not kind or "forward" in vars(layer):
        return False
    return not has_hooks(layer) and all(_is_plain_tensor(parameter) for parameter in layer._parameters.values())


def has_hooks(layer: nn.Module) -> bool:
    """Whether a call of a layer also calls hooks that are registered on it."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def _is_plain_tensor(parameter: Tensor | None) -> bool:
    return parameter is not None and type(parameter) in (nn.Parameter, Tensor) and parameter.is_floating_point()


def can_fuse(*layers: nn.Module) -> bool:
    """Whether all layers are plain ``nn.Linear`` layers, so that one matmul computes the same."""
    return all(is_plain(layer, nn.Linear) for layer in layers)


def project(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input; on a GPU as one matmul if `can_fuse` allows it."""
    return project_fused(x, *layers) if x.is_cuda and can_fuse(*layers) else tuple(layer(x) for layer in layers)


def project_fused(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input as one matmul with their concatenated weights."""
    return project_weights(x, *((layer.weight, layer.bias) for layer in layers))


def project_weights(x: Tensor, *layers: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Apply several linear layers, given by weights and biases, as one matmul."""
    return torch.split(project_together(x, *layers), [len(weight) for weight, _ in layers], dim=-1)


def project_together(x: Tensor, *layers: tuple[Tensor, Tensor]) -> Tensor:
    """The results of `project_weights` as one tensor."""
    return apply_linear(x, torch.cat([weight for weight, _ in layers]), torch.cat([bias for _, bias in layers]))


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer as a matmul that also adds the bias, for any memory layout of x."""
    if x.is_contiguous():
        return F.linear(x, weight, bias)
    # With more than two dimensions, PyTorch would otherwise add the bias by a kernel of its own.
    return F.linear(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], len(weight))


def has_product(layer: nn.Module) -> "TypeGuard[nn.Linear | GroupedLinear]":
    """Whether a layer is a plain linear one, dense or grouped, so that its bias can be added by what follows."""
    return is_plain(layer, nn.Linear) or is_plain(layer, GroupedLinear)


def product(x: Tensor, layer: nn.Linear | GroupedLinear) -> Tensor:
    """The result of a layer that `has_product`, without its bias."""
    if isinstance(layer, GroupedLinear):
        return grouped_product(x, layer.weight)
    return F.linear(x, layer.weight)


# Activations


def project_and_activate(x: Tensor, layer: nn.Module, activation: nn.Module) -> Tensor:
    """Apply a linear layer and an activation; with the kernel for bias and GELU if both layers are plain."""
    if gelu.has_kernel(x) and has_product(layer) and _is_exact_gelu(activation):
        return gelu.bias_gelu(product(x, layer), layer.bias)
    activated: Tensor = activation(layer(x))
    return activated


def project_and_score(x: Tensor, layer: nn.Module, activation: nn.Module, output: nn.Linear) -> Tensor:
    """Apply a linear layer, an activation, and a linear layer with one output: [..., D] -> [...]."""
    if gelu.has_kernel(x) and has_product(layer) and _is_exact_gelu(activation) and is_plain(output, nn.Linear):
        return gelu.gelu_score(product(x, layer), layer.bias, output.weight[0]) + output.bias
    scores: Tensor = output(project_and_activate(x, layer, activation))
    return scores.squeeze(-1)


def project_large(x: Tensor, up: nn.Module, activation: nn.Module, down: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Apply two linear layers with GELU between them, without keeping large activations for the backward pass.

    Returns the result without the bias of the second layer, and that bias. None if the activations are small, or
    without the kernel, which takes plain layers.
    """
    if not gelu.has_kernel(x) or not torch.is_grad_enabled():
        return None
    if not is_plain(up, nn.Linear) or not is_plain(down, nn.Linear) or not _is_exact_gelu(activation):
        return None
    if x.shape[:-1].numel() * up.out_features < _LARGE:
        return None
    return gelu.gelu_linear(F.linear(x, up.weight), up.bias, down.weight), down.bias


def _is_exact_gelu(activation: nn.Module) -> bool:
    return is_plain(activation, nn.GELU) and activation.approximate == "none"


# Norms


def project_and_norm(x: Tensor, *layers: tuple[nn.Linear, nn.Module | None]) -> tuple[Tensor, ...]:
    """norm(layer(x)) for several layers with their norms, if they have one, [..., D] each.

    On a GPU as one matmul if the layers are plain, with the scales and shifts of each plain `NoNorm` in its weights.
    """
    linears, norms = [layer for layer, _ in layers], [norm for _, norm in layers]
    if on_gpu(x) and can_fuse(*linears) and _are_scales(norms):
        return project_weights(x, *(_scaled(layer, norm) for layer, norm in zip(linears, norms, strict=True)))
    projected = zip(project(x, *linears), norms, strict=True)
    return tuple(one if norm is None else norm(one) for one, norm in projected)


def project_add_and_norm(
    x: Tensor, inputs: Tensor, layer: nn.Module, norm: nn.Module, dropout: nn.Dropout | None = None
) -> Tensor:
    """norm(x + dropout(layer(inputs))), [..., D]; with the layer's bias in the kernel if the layers are plain.

    On a GPU, the scale of a plain `NoNorm` is applied to the layer's weights and to x: the sum is not needed for its
    gradient, and the gradient of the result is that of the layer's output as it is.
    """
    rate = _rate(dropout)
    if has_product(layer) and rate is not None:
        if is_plain(norm, nn.LayerNorm) and residual.has_kernel(x, as_autocast(inputs)):
            # The kernel's backward pass also sums the bias's gradient; autograd would read the change's again.
            return add_and_norm(x, product(inputs, layer), norm, dropout, layer.bias)
        if is_plain(layer, nn.Linear) and is_plain(norm, NoNorm) and on_gpu(x):
            scale = norm.weight
            change = F.linear(inputs, layer.weight * scale.unsqueeze(-1), layer.bias * scale)
            return as_autocast(x * scale + norm.bias) + (change if dropout is None else dropout(change))
    return add_and_norm(x, layer(inputs), norm, dropout)


def add_and_norm(
    x: Tensor,
    change: Tensor,
    norm: nn.Module,
    dropout: nn.Dropout | None = None,
    change_bias: Tensor | None = None,
) -> Tensor:
    """norm(x + dropout(change + change_bias)), [..., D]; as one kernel if the layers are plain."""
    rate = _rate(dropout)
    if residual.has_kernel(x, change) and is_plain(norm, nn.LayerNorm) and rate is not None:
        return residual.residual_norm(x, change, norm.weight, norm.bias, norm.eps, rate, change_bias=change_bias)
    if change_bias is not None:
        change = change + change_bias
    result: Tensor = norm(x + (change if dropout is None else dropout(change)))
    return result


def _are_scales(norms: list[nn.Module | None]) -> TypeGuard[list[NoNorm | None]]:
    return all(norm is None or is_plain(norm, NoNorm) for norm in norms)


def _scaled(layer: nn.Linear, norm: NoNorm | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that computes norm(layer(x))."""
    if norm is None:
        return layer.weight, layer.bias
    return layer.weight * norm.weight.unsqueeze(-1), layer.bias * norm.weight + norm.bias


def _rate(dropout: nn.Dropout | None) -> float | None:
    """The probability with which elements are dropped; None if only the layer itself can do it."""
    if dropout is None:
        return 0.0
    if not is_plain(dropout, nn.Dropout):
        return None
    rate = dropout.p if dropout.training else 0.0
    return rate if rate < 1 else None


# Embeddings, blocks and heads


def look_up(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Call an embedding; on a GPU with a gradient that has the same bits in every run, if the layer is plain."""
    if on_gpu(ids) and is_plain(table, nn.Embedding) and _has_defaults(table):
        return embedding(ids, table.weight)
    rows: Tensor = table(ids)
    return rows


def _has_defaults(table: nn.Embedding) -> bool:
    special = table.sparse or table.scale_grad_by_freq or table.max_norm is not None
    return not special and table.padding_idx is None


class FusedEmbeddings(Embeddings):
    """Embeddings whose gradients have the same bits in every run."""

    def look_up(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Ids [B, T] -> rows of a table [B, T, width of the table]."""
        return look_up(table, ids)


class FusedTrigramEmbeddings(TrigramEmbeddings):
    """Trigram embeddings whose gradients have the same bits in every run."""

    def look_up(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Ids [B, T] -> rows of a table [B, T, width of the table]."""
        return look_up(table, ids)


class FusedPostNormBlock(PostNormBlock):
    """The norm's kernel adds the bias of the output projection and the residual, with dropout."""

    def forward(self, x: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        mixed = self.mixer(x, mask, record=record)
        result: Tensor = self.feedforward(project_add_and_norm(x, mixed, self.output, self.norm, self.dropout))
        return result


class FusedBottleneckBlock(BottleneckBlock):
    """All layers that read the wide stream are one matmul; kernels add residuals, or weights contain the scales."""

    def forward(self, x: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if self.shared is not None and self.shared_norm is not None:
            layers = self.mixer.linear_projections() if isinstance(self.mixer, FusedSelfAttention) else None
            more = [(layers[2], None)] if layers else []
            inside, shared, *values = project_and_norm(
                x, (self.enter, self.enter_norm), (self.shared, self.shared_norm), *more
            )  # [B, T, N]
            projected = {"values": values[0]} if values else {}
            mixed = self.mixer(shared, mask, value=x, record=record, **projected)
        else:
            inside = self.enter_norm(self.enter(x))
            mixed = self.mixer(x if self.wide else inside, mask, record=record)
        inside = self.feedforward(project_add_and_norm(inside, mixed, self.output, self.norm))
        return project_add_and_norm(x, inside, self.leave, self.leave_norm, self.dropout)


class FusedFeedForward(FeedForward):
    """MobileBERT's feed-forward is one kernel; others have kernels for bias and GELU, and for residual and norm."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        result = self._by_one_kernel(x)
        if result is not None:
            return result
        large = project_large(x, self.up, self.activation, self.down)
        if large is not None:
            change, bias = large
            return add_and_norm(x, change, self.norm, self.dropout, bias)
        inner = project_and_activate(x, self.up, self.activation)
        return project_add_and_norm(x, inner, self.down, self.norm, self.dropout)

    def _by_one_kernel(self, x: Tensor) -> Tensor | None:
        """The result of MobileBERT's feed-forward by its kernel; None if the layers are others or not plain."""
        up, down, norm = self.up, self.down, self.norm
        if not is_plain(up, nn.Linear) or not is_plain(down, nn.Linear) or not is_plain(norm, NoNorm):
            return None
        if not narrow.has_kernel(x, up.out_features) or not is_plain(self.activation, nn.ReLU):
            return None
        if not is_plain(self.dropout, nn.Dropout) or (self.dropout.p and self.dropout.training):
            return None
        return narrow.relu_feedforward(x, up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias)


class FusedMaskedLanguage(MaskedLanguage):
    """A kernel adds the bias of the transform and applies GELU."""

    def features(self, states: Tensor) -> Tensor:
        """States [..., D] to the input of the decoder [..., hidden]."""
        features: Tensor = self.norm(project_and_activate(states, self.transform, self.activation))
        return features


class FusedReplacedToken(ReplacedToken):
    """A kernel computes the logits without writing activations."""

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] to [...]."""
        return project_and_score(states, self.dense, self.activation, self.output)


# Mixers


class FusedSelfAttention(SelfAttention):
    """One matmul for queries, keys, values and the weights of all offsets; one op for all heads, and one gradient."""

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        *,
        value: Tensor | None = None,
        record: Record | None = None,
        values: Tensor | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, out_width].

        values [B, T, H·E]: the result of the layer ``value``, if it is computed together with other projections.
        """
        layers = self.linear_projections()
        if layers is None:
            return super().forward(x, mask, value=value, record=record)
        if value is not None:
            query, key = project(x, *layers[:2])
            return self.mix(query, key, self.value(value) if values is None else values, (x, value), mask, record)
        together = self._together(x, mask, record, layers)
        if together is not None:
            return together
        # The convolution's values, if one matmul computes them together with the other streams.
        convolution = self.convolution if on_gpu(x) and isinstance(self.convolution, FusedDynamicConvolution) else None
        more = () if convolution is None or convolution.value is None else (convolution.value,)
        query, key, values, *convolved = project(x, *layers, *more)
        return self.mix(query, key, values, (x, x), mask, record, *convolved)

    def _together(self, x: Tensor, mask: Mask, record: Record | None, layers: _Layers) -> Tensor | None:
        """All heads by one op; None if there is no op for them, or a layer must be called."""
        if self.depthwise is not None or not can_fuse(*layers):
            return None
        dropout = self.dropout if self.training else 0.0
        if self.convolution is not None:
            convolution = self._plain_convolution() if record is None and on_gpu(x) and not self.has_biases else None
            return None if convolution is None else self._mixed_heads(x, mask, layers, convolution, dropout)
        layout = self._layout
        if keeps_scores(record) or not joined.has_kernel(x, layout):
            return None
        streams = project_together(x, *self._weights(layers, layout))
        texts, outside = mask.attention_texts, self.outside
        return joined.joined_attention(streams, texts, layout=layout, outside=outside, dropout=dropout)

    def dynamic_weights(self, heads: Tensor, dynamic: Tensor | None) -> Tensor | None:
        """Generate one weight per offset from queries or keys: [B, H, T, E] -> [B, H, T, 2R+1]."""
        if dynamic is None or not heads.is_cuda:
            return super().dynamic_weights(heads, dynamic)
        # Tensor cores need rows of 16 bytes.
        matrix = F.pad(dynamic.to(heads.dtype), (0, -self.offsets % 8))
        token_major = heads.transpose(1, 2) @ matrix
        weights: Tensor = token_major.transpose(1, 2)[..., : self.offsets] * heads.shape[-1] ** -0.5
        return weights

    @property
    def _layout(self) -> joined.Layout:
        if not self.has_biases:
            return joined.Layout(self.n_heads, self.head_width)
        by_query = self.fixed is not None or self.query_dynamic is not None
        return joined.Layout(self.n_heads, self.head_width, self.offsets, by_query, self.key_dynamic is not None)

    def _weights(self, layers: _Layers, layout: joined.Layout) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the layers that compute the streams of a layout."""
        weights: list[tuple[Tensor, Tensor]] = [(layer.weight, layer.bias) for layer in layers]
        if layout.by_query:
            weights.append(self._as_layer(layers[0], self.query_dynamic, self.fixed))
        if layout.by_key:
            weights.append(self._as_layer(layers[1], self.key_dynamic, None))
        return weights

    def _as_layer(self, layer: nn.Linear, dynamic: Tensor | None, fixed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weights of all offsets as a linear layer of the input: queries or keys, times their map, plus fixed."""
        rows = self.n_heads * self.offsets
        weight, bias = layer.weight.new_zeros(rows, self.width), layer.bias.new_zeros(rows)
        if dynamic is not None:
            scaled = dynamic.t() * (self.head_width) ** -0.5
            weight = (scaled @ layer.weight.unflatten(0, (self.n_heads, -1))).flatten(0, 1)
            bias = (layer.bias.unflatten(0, (self.n_heads, -1)) @ scaled.t()).flatten()
        if fixed is not None:
            bias = bias + fixed.flatten()
        unused = self._layout.bias_width - rows
        return F.pad(weight, (0, 0, 0, unused)), F.pad(bias, (0, unused))

    def _plain_convolution(self) -> "FusedSpanConvolution | None":
        """The convolution, if one op computes what its layers and those of attention compute."""
        convolution = self.convolution
        if convolution is None or not is_plain(convolution, FusedSpanConvolution) or convolution.value is None:
            return None
        return convolution if can_fuse(convolution.value, convolution.kernel, convolution.pointwise) else None

    def _mixed_heads(
        self, x: Tensor, mask: Mask, layers: _Layers, convolution: "FusedSpanConvolution", dropout: float
    ) -> Tensor:
        """Both kinds of heads by one op."""
        assert convolution.value is not None
        # Before the projections: the convolution waits for memory, and finds its input in the cache.
        span_key = F.linear(convolution.depthwise(x, mask), convolution.pointwise.weight)
        streams = (*layers, convolution.value)
        bias = torch.cat([layer.bias for layer in streams])
        return mixed_heads(
            apply_linear(x, torch.cat([layer.weight for layer in streams]), bias.detach()),
            bias,
            span_key,
            convolution.pointwise.bias,
            *convolution.padded_kernel(),
            mask.attention_texts,
            mask.convolution_texts,
            n_heads=self.n_heads,
            taps=convolution.taps,
            dropout=dropout,
        )


class FusedLocalAttention(LocalAttention):
    """One matmul for queries and keys."""

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        query, key = project(x, self.query, self.key)
        return self.mix(x, query, key, x if value is None else value, mask, record)


class Padding(NamedTuple):
    """Rows of zeros after each of several blocks of rows."""

    blocks: int = 1
    filler: int = 0
    """Rows of zeros per block."""

    def split(self, rows: Tensor) -> list[Tensor]:
        """The blocks of unpadded rows; one if there is nothing to pad."""
        return [*rows.unflatten(0, (self.blocks, -1)).unbind()] if self.filler else [rows]

    def filled(self, rows: Tensor) -> list[Tensor]:
        """The blocks of padded rows, without their padding."""
        return [block[: -self.filler] for block in self.split(rows)] if self.filler else [rows]


class FusedDynamicConvolution(DynamicConvolution):
    """The outputs of the kernel layer are padded, because odd matmuls are slow on a GPU."""

    def logits(self, span: Tensor) -> Tensor:
        """Apply the kernel layer: [B, T, a] -> [B, T, H, K or more]."""
        if not (on_gpu(span) and is_plain(self.kernel, nn.Linear)):
            return super().logits(span)
        logits: Tensor = F.linear(span, *self.padded_kernel()).unflatten(-1, (self.n_heads, -1))
        return logits

    @property
    def padding(self) -> Padding:
        """How the outputs of the kernel layer are padded."""
        return Padding(self.n_heads, -self.taps % PADDING)

    def padded_kernel(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias of the kernel layer with padded outputs."""
        heads = (self.n_heads, self.taps)
        assert isinstance(self.kernel, nn.Linear)
        weight: Tensor = self.kernel.weight
        bias: Tensor = self.kernel.bias
        # The copies of half precision in training are padded already.
        if len(weight) == self.n_heads * self.taps:
            weight = F.pad(weight.unflatten(0, heads), (0, 0, 0, self.padding.filler)).flatten(0, 1)
            bias = F.pad(bias.unflatten(0, heads), (0, self.padding.filler)).flatten()
        return weight, bias


class FusedSpanConvolution(FusedDynamicConvolution, SpanConvolution):
    """A span-based dynamic convolution with a padded kernel layer."""


def kernel_paddings(module: nn.Module) -> dict[nn.Module, Padding]:
    """The kernel layers of dynamic convolutions whose parameters may be replaced by padded copies."""
    return {
        part.kernel: part.padding
        for part in module.modules()
        if isinstance(part, FusedDynamicConvolution) and is_plain(part.kernel, nn.Linear) and on_gpu(part.kernel.weight)
    }


_FUSED: dict[type[nn.Module], type[nn.Module]] = {
    Embeddings: FusedEmbeddings,
    TrigramEmbeddings: FusedTrigramEmbeddings,
    PostNormBlock: FusedPostNormBlock,
    BottleneckBlock: FusedBottleneckBlock,
    FeedForward: FusedFeedForward,
    MaskedLanguage: FusedMaskedLanguage,
    ReplacedToken: FusedReplacedToken,
    SelfAttention: FusedSelfAttention,
    LocalAttention: FusedLocalAttention,
    DynamicConvolution: FusedDynamicConvolution,
    SpanConvolution: FusedSpanConvolution,
}
