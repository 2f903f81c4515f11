"""Small models of the releases in numpy: variables under TensorFlow's names, and their forward pass.

Written from the layers of the releases, independently of our keymaps and modules, so that an error that affects reading
and writing alike is detected.
"""

import math

import numpy as np

V, T = 20, 7
IDS = np.random.default_rng(1).integers(0, V, (2, T))
MASK = np.arange(T) < np.array([[T], [4]])
SEGMENTS = (np.arange(T) > 2) & MASK

erf = np.vectorize(math.erf)


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Variables(dict):
    """Random named arrays."""

    def __init__(self, seed=0):
        super().__init__()
        self.random = np.random.default_rng(seed)

    def draw(self, name, *shape):
        self[name] = self.random.normal(0, 0.5, shape).astype(np.float32)

    def dense(self, name, inputs, outputs):
        self.draw(f"{name}/kernel", inputs, outputs)
        self.draw(f"{name}/bias", outputs)

    def grouped(self, name, inputs, outputs, groups):
        self.draw(f"{name}/kernel", groups, inputs // groups, outputs // groups)
        self.draw(f"{name}/bias", outputs)

    def norm(self, name, width):
        self.draw(f"{name}/gamma", width)
        self.draw(f"{name}/beta", width)

    def tables(self, scope, narrow, width):
        self.draw(f"{scope}/word_embeddings", V, narrow)
        self.draw(f"{scope}/position_embeddings", 10, width)
        self.draw(f"{scope}/token_type_embeddings", 2, width)

    def add_slots(self):
        for name in list(self):
            self[f"{name}/adam_m"], self[f"{name}/adam_v"] = np.zeros_like(self[name]), np.ones_like(self[name])
        self["global_step"] = np.array(1000000, dtype=np.int64)

    def __getitem__(self, name):
        assert not name.endswith(("adam_m", "adam_v", "global_step")), f"{name} is of no use to a model"
        return super().__getitem__(name)

    def apply(self, name, x):
        kernel = self[f"{name}/kernel"]
        if kernel.ndim == 3:
            shares = np.split(x, len(kernel), axis=-1)
            return (
                np.concatenate([share @ block for share, block in zip(shares, kernel, strict=True)], -1)
                + self[f"{name}/bias"]
            )
        return x @ kernel + self[f"{name}/bias"]

    def normalise(self, name, x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return self.scale(name, x)

    def scale(self, name, x):
        return x * self[f"{name}/gamma"] + self[f"{name}/beta"]

    def places(self, scope):
        return self[f"{scope}/token_type_embeddings"][SEGMENTS.astype(int)] + self[f"{scope}/position_embeddings"][:T]

    def attend(self, scope, x, heads, value=None):
        query, key = self.apply(f"{scope}/query", x), self.apply(f"{scope}/key", x)
        values = self.apply(f"{scope}/value", x if value is None else value)
        parts = []
        for q, k, v in zip(*(np.split(stream, heads, axis=-1) for stream in (query, key, values)), strict=True):
            scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]) + (1 - MASK[:, None]) * -10000.0
            parts.append(softmax(scores) @ v)
        return query, np.concatenate(parts, -1)


def convbert_checkpoint(groups=1):
    """Two heads of three channels and of each kind; in the generator one head of the full width."""
    variables = Variables()
    convbert(variables, "electra", width=12, heads=2, attention_width=6, inner=48, groups=groups)
    convbert(variables, "generator", width=8, heads=1, attention_width=8, inner=32, groups=groups)
    variables.dense("discriminator_predictions/dense", 12, 12)
    variables.dense("discriminator_predictions/dense_1", 12, 1)
    variables.dense("generator_predictions/dense", 8, 6)
    variables.norm("generator_predictions/LayerNorm", 6)
    variables.draw("generator_predictions/output_bias", V)
    variables.add_slots()
    return variables


def convbert(variables, body, *, width, heads, attention_width, inner, groups=1, kernel=3, narrow=6, depth=2):
    """Draw an encoder of ConvBERT; the embeddings are drawn once, under `electra`."""
    if "electra/embeddings/word_embeddings" not in variables:
        variables.tables("electra/embeddings", narrow, narrow)
        variables.norm("electra/embeddings/LayerNorm", narrow)
    if narrow != width:
        variables.dense(f"{body}/embeddings_project", narrow, width)
    for layer in (f"{body}/encoder/layer_{index}" for index in range(depth)):
        for name in ("query", "key", "value", "conv_attn_point"):
            variables.dense(f"{layer}/attention/self/{name}", width, attention_width)
        variables.draw(f"{layer}/attention/self/conv_attn_key/depthwise_kernel", kernel, width, 1)
        variables.draw(f"{layer}/attention/self/conv_attn_key/pointwise_kernel", 1, width, attention_width)
        variables.draw(f"{layer}/attention/self/conv_attn_key/bias", attention_width)
        variables.dense(f"{layer}/attention/self/conv_attn_kernel", attention_width, heads * kernel)
        variables.dense(f"{layer}/attention/output/dense", 2 * attention_width, width)
        variables.norm(f"{layer}/attention/output/LayerNorm", width)
        if groups == 1:
            variables.dense(f"{layer}/intermediate/dense", width, inner)
            variables.dense(f"{layer}/output/dense", inner, width)
        else:
            variables.grouped(f"{layer}/intermediate/g_dense", width, inner, groups)
            variables.grouped(f"{layer}/output/g_dense", inner, width, groups)
        variables.norm(f"{layer}/output/LayerNorm", width)


def convbert_states(variables, body, heads):
    x = variables["electra/embeddings/word_embeddings"][IDS] + variables.places("electra/embeddings")
    x = variables.normalise("electra/embeddings/LayerNorm", x)
    if f"{body}/embeddings_project/kernel" in variables:
        x = variables.apply(f"{body}/embeddings_project", x)
    index = 0
    while f"{body}/encoder/layer_{index}/output/LayerNorm/gamma" in variables:
        layer = f"{body}/encoder/layer_{index}"
        name = "g_dense" if f"{layer}/output/g_dense/kernel" in variables else "dense"
        query, attended = variables.attend(f"{layer}/attention/self", x, heads)
        mixed = np.concatenate([attended, convolve(variables, f"{layer}/attention/self", x, query, heads)], -1)
        change = variables.apply(f"{layer}/attention/output/dense", mixed)
        x = variables.normalise(f"{layer}/attention/output/LayerNorm", x + change)
        change = variables.apply(f"{layer}/output/{name}", gelu(variables.apply(f"{layer}/intermediate/{name}", x)))
        x = variables.normalise(f"{layer}/output/LayerNorm", x + change)
        index += 1
    return x


def convolve(variables, scope, x, query, heads):
    """The span-based dynamic convolution; it reads the padding like text."""
    depthwise = variables[f"{scope}/conv_attn_key/depthwise_kernel"][:, :, 0]
    side = len(depthwise) // 2
    padded = np.pad(x, ((0, 0), (side, side), (0, 0)))
    key = sum(padded[:, tap : tap + T] * weights for tap, weights in enumerate(depthwise))
    key = key @ variables[f"{scope}/conv_attn_key/pointwise_kernel"][0] + variables[f"{scope}/conv_attn_key/bias"]
    kernels = softmax(variables.apply(f"{scope}/conv_attn_kernel", key * query).reshape(*x.shape[:2], heads, -1))
    values = np.pad(variables.apply(f"{scope}/conv_attn_point", x), ((0, 0), (side, side), (0, 0)))
    values = values.reshape(len(x), T + 2 * side, heads, -1)
    convolved = sum(kernels[..., tap, None] * values[:, tap : tap + T] for tap in range(len(depthwise)))
    return convolved.reshape(*x.shape[:2], -1)


def mobilebert_checkpoint(width=8, block=6, narrow=4, inner=10, feedforwards=3, depth=2):
    """A MobileBERT as released: shared queries and keys, no norms, raw [CLS]."""
    variables = Variables()
    variables.tables("bert/embeddings", narrow, width)
    variables.dense("bert/embeddings/embedding_transformation", 3 * narrow, width)
    variables.norm("bert/embeddings/FakeLayerNorm", width)
    for layer in (f"bert/encoder/layer_{index}" for index in range(depth)):
        for scope in (f"{layer}/bottleneck/input", f"{layer}/bottleneck/attention"):
            variables.dense(f"{scope}/dense", width, block)
            variables.norm(f"{scope}/FakeLayerNorm", block)
        variables.dense(f"{layer}/attention/self/query", block, block)
        variables.dense(f"{layer}/attention/self/key", block, block)
        variables.dense(f"{layer}/attention/self/value", width, block)
        variables.dense(f"{layer}/attention/output/dense", block, block)
        variables.norm(f"{layer}/attention/output/FakeLayerNorm", block)
        for scope in (*(f"{layer}/ffn_layer_{index}" for index in range(feedforwards - 1)), layer):
            variables.dense(f"{scope}/intermediate/dense", block, inner)
            variables.dense(f"{scope}/output/dense", inner, block)
            variables.norm(f"{scope}/output/FakeLayerNorm", block)
        variables.dense(f"{layer}/output/bottleneck/dense", block, width)
        variables.norm(f"{layer}/output/bottleneck/FakeLayerNorm", width)
    variables.dense("cls/predictions/transform/dense", width, width)
    variables.norm("cls/predictions/transform/LayerNorm", width)
    variables.draw("cls/predictions/output_bias", V)
    variables.draw("cls/predictions/extra_output_weights", V, width - narrow)
    variables.draw("cls/seq_relationship/output_weights", 2, width)
    variables.draw("cls/seq_relationship/output_bias", 2)
    variables.add_slots()
    return variables


def mobilebert_states(variables, *, heads, feedforwards=3, depth=2):
    words = np.pad(variables["bert/embeddings/word_embeddings"][IDS], ((0, 0), (1, 1), (0, 0)))
    trigrams = np.concatenate([words[:, 2:], words[:, 1:-1], words[:, :-2]], -1)
    x = variables.apply("bert/embeddings/embedding_transformation", trigrams) + variables.places("bert/embeddings")
    x = variables.scale("bert/embeddings/FakeLayerNorm", x)
    for layer in (f"bert/encoder/layer_{index}" for index in range(depth)):
        inside, shared = (
            variables.scale(f"{scope}/FakeLayerNorm", variables.apply(f"{scope}/dense", x))
            for scope in (f"{layer}/bottleneck/input", f"{layer}/bottleneck/attention")
        )
        _, attended = variables.attend(f"{layer}/attention/self", shared, heads, value=x)
        change = variables.apply(f"{layer}/attention/output/dense", attended)
        inside = variables.scale(f"{layer}/attention/output/FakeLayerNorm", inside + change)
        for scope in (*(f"{layer}/ffn_layer_{index}" for index in range(feedforwards - 1)), layer):
            change = relu(variables.apply(f"{scope}/intermediate/dense", inside))
            change = variables.apply(f"{scope}/output/dense", change)
            inside = variables.scale(f"{scope}/output/FakeLayerNorm", inside + change)
        change = variables.apply(f"{layer}/output/bottleneck/dense", inside)
        x = variables.scale(f"{layer}/output/bottleneck/FakeLayerNorm", x + change)
    return x
