"""Linear ways to learn labels from texts, and their cross-validation: words, vectors of the frozen encoder, or both."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lightbert.data.features import Features, Specials
from lightbert.models import Model, add_head
from lightbert.models.folder import with_changes
from lightbert.nn.heads import Projection, TextHead
from lightbert.nn.inference import Inference, LayerVectors
from lightbert.nn.words import Words
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.contrast import BATCH, MAX_TEXTS, MAX_TEXTS_PER_LABEL, STEPS, tune
from lightbert.tasks.finetune.linear import Linear, fit, folds, held_out_losses
from lightbert.tasks.finetune.starting_model import set_head
from lightbert.tasks.finetune.word_features import WordFeatures
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime

MAX_ROWS = 4_000
"""Linear models are fitted on at most this many texts: their Gram matrix has as many rows and columns."""
_VECTOR_LAYERS = 6
_TIMED_TEXTS = 64
BACKWARD = 3.0
"""The time of a training step, relative to the forward pass."""
_SAMPLES = 100
_COST = 1.0
_WEIGHTS_OF_VECTORS = (1.0, 0.3, 3.0)
_TUNED_PARTS = 2
_CLEAR = 3.0
"""Another layer or weight than the first is chosen if it is better by this many standard errors."""

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Score:
    """A row of the table of methods."""

    method: str
    score: float
    """The expected value of the task's metric."""
    error: float
    """The standard error of the score."""
    seconds: float
    """To train it, once its settings are known."""
    rate: float
    """Texts per second that it predicts here."""


@dataclass(frozen=True)
class Texts:
    """Labelled texts, encoded, with everything that linear models need."""

    kind: Kind[Any]
    metric: str
    examples: Sequence[Example]
    features: Features
    targets: NDArray[Any]
    sources: NDArray[np.int64]
    """The index of the data set of each text."""
    parts: Sequence[NDArray[np.int64]]
    """The rows of each held-out part."""
    count: int
    """The number of parts that hold out each text once, or one of them in large data; the others repeat it."""

    @classmethod
    def of(
        cls, kind: Kind[Any], metric: str, parts: Sequence[tuple[Sequence[Example], Features]], seed: int
    ) -> "Texts":
        """Join data sets, and choose the rows to hold out; from large data, rows are drawn."""
        examples = [example for part, _ in parts for example in part]
        sources = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
        features = Features.concatenate([each for _, each in parts])
        targets = np.concatenate([each.targets for _, each in parts if each.targets is not None])
        if isinstance(kind, Regress) and kind.scaled:
            targets = (targets * (kind.high - kind.low) + kind.low).astype(np.float32)
            kind = replace(kind, scaled=False)
        if len(examples) > MAX_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(len(examples), MAX_ROWS, replace=False))
            examples, targets, sources = [examples[row] for row in rows], targets[rows], sources[rows]
            features = _select(features, rows)
        order = [tuple(row) if isinstance(row, list) else row for row in targets.tolist()]
        groups = [(example.text, example.text_b) for example in examples]
        count = len(examples)
        once = 5 if count <= 1500 else 3
        repeats = 2 if count <= 600 else 1
        held_out = [part for repeat in range(repeats) for part in folds(groups, order, once, seed + repeat)]
        if count > 3000:
            held_out, once = held_out[:1], 1
        return cls(kind, metric, examples, features, targets, sources, held_out, once)

    @property
    def outputs(self) -> int:
        """The number of scores of a text."""
        return len(getattr(self.kind, "labels", ())) or 1

    def rest(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows that aren't in a held-out part."""
        return np.setdiff1d(np.arange(len(self.examples)), part)

    def predictions(self, kind: Kind[Any], part: NDArray[np.int64], scores: Tensor) -> list[Prediction]:
        """The predictions for the rows of a part with these scores."""
        examples = [self.examples[row] for row in part]
        rows = scores[:, 0] if isinstance(kind, Regress) else scores
        return kind.predictions(examples, self.features, [(row,) for row in rows.numpy()])


@dataclass(frozen=True)
class Validated:
    """What cross-validation says about a method."""

    texts: Texts
    kind: Kind[Any]
    """The kind of task, with its threshold."""
    predictions: Sequence[list[Prediction]]
    """For each held-out part."""
    scale: float = 1.0
    shift: float = 0.0
    """The outputs of the model are scores · scale + shift."""

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the held-out parts."""
        examples = self.texts.examples
        metrics = [
            self.kind.metrics([examples[row] for row in part], each)
            for part, each in zip(self.texts.parts, self.predictions, strict=True)
        ]
        return {name: fmean(each[name] for each in metrics) for name in metrics[0]}

    @property
    def score(self) -> float:
        """The mean of the task's metric."""
        return self.metrics[self.texts.metric]

    @cached_property
    def error(self) -> float:
        """The standard error of this mean, from the parts that hold out each text once."""
        parts = self.texts.parts[: self.texts.count]
        examples = [self.texts.examples[row] for part in parts for row in part]
        known = [each for part in self.predictions[: len(parts)] for each in part]
        return standard_error(
            lambda rows: self.kind.metrics([examples[row] for row in rows], [known[row] for row in rows])[
                self.texts.metric
            ],
            len(examples),
        )


def standard_error(measure: Callable[[NDArray[np.int64]], float], count: int) -> float:
    """The standard deviation of a metric of `count` rows under resampling of the rows."""
    random = np.random.default_rng(0)
    return float(np.std([measure(random.integers(0, count, count)) for _ in range(_SAMPLES)]))


def choose(texts: Texts, grams: Mapping[Choice, Tensor]) -> Choice:
    """The first of some features, or those that clearly predict better, by their Gram matrices.

    The best of many by cross-validation is often the luckiest: with few texts, the first is better on test.
    """
    losses = {key: held_out_losses(gram, texts.targets, texts.outputs, texts.parts) for key, gram in grams.items()}
    best = first = next(iter(grams))
    for key, loss in losses.items():
        gain = losses[first] - loss
        error = gain.std() / min(len(gain), len(texts.examples)) ** 0.5
        if gain.mean() > _CLEAR * error and loss.mean() < losses[best].mean():
            best = key
    return best


def cross_validate(texts: Texts, gram_of: Callable[[NDArray[np.int64]], Tensor]) -> Validated:
    """Fit a linear model without each of the held-out parts, and measure it on the part.

    gram_of: the Gram matrix of all texts for a model that may learn from these rows.
    """
    raw = []
    for part in texts.parts:
        rest = texts.rest(part)
        gram = gram_of(rest)
        linear = fit(gram[np.ix_(rest, rest)], texts.targets[rest], texts.outputs, _COST)
        raw.append(linear.scores(gram[np.ix_(part, rest)]))
    rows = np.concatenate(texts.parts)
    scale, shift = _calibrate(torch.cat(raw), texts.targets[rows])
    scores = [scale * each + shift for each in raw]
    kind = texts.kind
    if isinstance(kind, Labels):
        kind = kind.tune([texts.examples[row] for row in rows], texts.predictions(kind, rows, torch.cat(scores)))
    predictions = [texts.predictions(kind, part, each) for part, each in zip(texts.parts, scores, strict=True)]
    return Validated(texts, kind, predictions, scale, shift)


def _calibrate(scores: Tensor, targets: NDArray[Any]) -> tuple[float, float]:
    """The scale and shift of held-out scores that make the most likely probabilities of them; 1 and 0 for numbers."""
    known = torch.from_numpy(targets)
    if known.dim() == 1 and known.is_floating_point():
        return 1.0, 0.0
    best = (float("inf"), 1.0, 0.0)
    for scale in np.geomspace(0.05, 32, 45).tolist():
        for shift in [0.0] if known.dim() == 1 else np.linspace(-4, 4, 17).tolist():
            logits = scale * scores + shift
            if known.dim() == 1:
                loss = F.cross_entropy(logits, known)
            else:
                loss = F.binary_cross_entropy_with_logits(logits, known)
            best = min(best, (float(loss), scale, shift))
    return best[1:]


def soften(model: Model, kind: Classify, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
    """Divide the logits of an overconfident classifier by the temperature that suits these predictions best."""
    probabilities = [[row["probabilities"][label] for label in kind.labels] for row in predictions]
    targets = np.array([kind.labels.index(str(example.label)) for example in examples])
    scale = min(1.0, _calibrate(torch.tensor(probabilities).double().clamp(min=1e-30).log(), targets)[0])
    head = model.heads[kind.head]
    assert isinstance(head, TextHead)
    with torch.no_grad():
        head.output.weight.mul_(scale)
        head.output.bias.mul_(scale)
        for table in (head.words.pieces, head.words.pairs) if head.words is not None else ():
            # The last column is a size.
            table[:, :-1].mul_(scale)


def majority(texts: Texts) -> Score:
    """The score of predictions that ignore the texts."""
    predictions = [
        texts.kind.baseline(
            replace(texts.features, targets=texts.targets[texts.rest(part)]), [texts.examples[row] for row in part]
        )
        for part in texts.parts
    ]
    result = Validated(texts, texts.kind, predictions)
    return Score("majority", result.score, result.error, 0.0, 0.0)


def texts_per_second(model: Model, texts: Texts) -> float:
    """How many texts the model predicts per second, once they are encoded."""
    rows = np.arange(min(_TIMED_TEXTS, len(texts.examples)))
    some = _select(texts.features, rows)
    runtime = TorchRuntime(Inference(model, texts.kind.head))
    _run(runtime, model, some)
    start = time.perf_counter()
    _run(runtime, model, some)
    return len(rows) / (time.perf_counter() - start)


class Method:
    """A linear model of some features of texts: a Gram matrix, and a network that computes its scores."""

    name: str

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @cached_property
    def gram(self) -> Tensor:
        """The Gram matrix of the texts, about 1 on the diagonal."""
        raise NotImplementedError

    def network(self, linear: Linear, seed: int) -> Model:
        """A model whose head computes these scores."""
        raise NotImplementedError

    @cached_property
    def validated(self) -> Validated:
        """The result of cross-validation."""
        return cross_validate(self.texts, lambda rows: self.gram)

    def train(self, seed: int, rows: NDArray[np.int64] | None = None) -> Model:
        """Fit the model on all texts, or on these rows."""
        texts, result = self.texts, self.validated
        chosen = np.arange(len(texts.examples)) if rows is None else rows
        linear = fit(self.gram[np.ix_(chosen, chosen)], texts.targets[chosen], texts.outputs, _COST)
        coefficients = torch.zeros(len(texts.examples), texts.outputs)
        coefficients[chosen] = linear.coefficients * result.scale
        return self.network(Linear(coefficients, linear.bias * result.scale + result.shift), seed).eval()

    def score(self, model: Model, seconds: float) -> Score:
        """The row of this method in the table; `model` is the trained one."""
        result = self.validated
        return Score(self.name, result.score, result.error, seconds, texts_per_second(model, self.texts))


class WordsMethod(Method):
    """TF-IDF of words and of their characters; the network needs no encoder."""

    name = "words"

    def __init__(self, texts: Texts, model: Model) -> None:
        super().__init__(texts)
        self._model = model

    @cached_property
    def features(self) -> WordFeatures:
        """The features, fitted on all texts."""
        features = self.texts.features
        rows = np.split(features.tokens, features.starts[1:-1])
        return WordFeatures(self._model.require_tokenizer(), self._model.table.shape[0], rows)

    @cached_property
    def gram(self) -> Tensor:
        """The Gram matrix of the features."""
        return self.features.gram()

    def network(self, linear: Linear, seed: int) -> Model:
        """A model that reads words alone."""
        model = with_changes(self._model, {"depth": 1})
        return _with_head(model, self.texts.kind, linear.bias, seed, words=self.features.layer(linear.coefficients))


class VectorsMethod(Method):
    """The vectors of a sentence encoder, or the mean and maximum of the states of its last or another layer."""

    name = "vectors"

    def __init__(self, texts: Texts, model: Model, layers: Sequence[int]) -> None:
        super().__init__(texts)
        self._model, self._layers = model, tuple(layers)

    @cached_property
    def _vectors(self) -> "dict[tuple[int, str, bool], Tensor]":
        """Layer, pool and whether the head "vector" follows -> the vectors of all texts [N, D]."""
        model = self._model
        outputs = _run(TorchRuntime(LayerVectors(model, self._layers)), model, self.texts.features)
        states = torch.from_numpy(np.stack([vector for (vector,) in outputs]))
        states = states.unflatten(1, (len(self._layers), 2, model.width))
        last = self._layers[-1]
        vectors: dict[tuple[int, str, bool], Tensor] = {}
        head = dict(model.heads.items()).get("vector")
        if isinstance(head, Projection) and head.pool == "mean" and not head.tanh and last == len(model.blocks):
            with torch.no_grad():
                vectors[last, "mean", True] = head.output(states[:, -1, 0].to(model.device)).cpu()
        for index, layer in reversed([*enumerate(self._layers)]):
            vectors[layer, "mean-max", False] = states[:, index].flatten(1)
        return vectors

    @cached_property
    def choice(self) -> tuple[int, str, bool]:
        """The vectors that are used."""
        return choose(self.texts, {key: _standardized(vectors).gram for key, vectors in self._vectors.items()})

    @property
    def depth(self) -> int:
        """The number of layers that are used."""
        return self.choice[0]

    @cached_property
    def _chosen(self) -> "_Standardized":
        return _standardized(self._vectors[self.choice])

    @cached_property
    def gram(self) -> Tensor:
        """The Gram matrix of the features."""
        return self._chosen.gram

    def network(self, linear: Linear, seed: int) -> Model:
        """A model with as many layers as the vectors need."""
        return self.build(linear, seed, None)

    def build(self, linear: Linear, seed: int, words: Words | None) -> Model:
        """A model with these scores, plus those of words."""
        layer, pool, projected = self.choice
        weight, offset = self._chosen.weights(linear.coefficients)
        bias = linear.bias + offset
        if projected:
            output = self._model.heads["vector"].get_submodule("output")
            bias = bias + output.get_parameter("bias").detach().cpu() @ weight
            weight = output.get_parameter("weight").detach().cpu().T @ weight
        model = with_changes(self._model, {"depth": layer})
        return _with_head(model, self.texts.kind, bias, seed, pool=pool, weight=weight, words=words)


class BothMethod(Method):
    """Words and vectors, which have the same weight unless another one is clearly better."""

    name = "both"

    def __init__(
        self, texts: Texts, words: WordsMethod, vectors: VectorsMethod, weights: Sequence[float] = _WEIGHTS_OF_VECTORS
    ) -> None:
        super().__init__(texts)
        self._words, self._vectors, self._weights = words, vectors, weights

    @cached_property
    def _weight(self) -> float:
        return choose(self.texts, {weight: self._gram(weight) for weight in self._weights})

    def _gram(self, weight: float) -> Tensor:
        return self._words.gram + weight * self._vectors.gram

    @cached_property
    def gram(self) -> Tensor:
        """The Gram matrix of the features."""
        return self._gram(self._weight)

    def network(self, linear: Linear, seed: int) -> Model:
        """A model with vectors and words."""
        weighted = Linear(self._weight * linear.coefficients, linear.bias)
        return self._vectors.build(weighted, seed, self._words.features.layer(linear.coefficients))


class ContrastMethod(Method):
    """Words, and vectors of the encoder after contrastive tuning on the same texts; for a few texts with one label."""

    name = "contrast"

    def __init__(self, texts: Texts, words: WordsMethod, model: Model, seed: int) -> None:
        # Each part requires a tuning.
        super().__init__(replace(texts, parts=texts.parts[:_TUNED_PARTS], count=_TUNED_PARTS))
        self._words, self._model, self._seed = words, model, seed

    def tuned(self, rows: NDArray[np.int64]) -> BothMethod:
        """Words and vectors of a model that is tuned on these rows."""
        model = tune(self._model, self.texts.features, self.texts.targets, rows, self._seed)
        vectors = VectorsMethod(self.texts, model, (len(model.blocks),))
        return BothMethod(self.texts, self._words, vectors, weights=(1.0,))

    @cached_property
    def validated(self) -> Validated:
        """The result of cross-validation on a few parts."""
        return cross_validate(self.texts, lambda rows: self.tuned(rows).gram)

    def train(self, seed: int, rows: NDArray[np.int64] | None = None) -> Model:
        """Tune and fit the model on all texts, or on these rows."""
        both = self._whole if rows is None else self.tuned(rows)
        both.validated = self.validated
        return both.train(seed, rows)

    @cached_property
    def _whole(self) -> BothMethod:
        return self.tuned(np.arange(len(self.texts.examples)))

    def minutes(self, rate: float) -> float:
        """Estimate the time of all tunings from the rate of predictions."""
        return (1 + _TUNED_PARTS) * STEPS * min(BATCH, len(self.texts.examples)) * BACKWARD / rate / 60

    @staticmethod
    def supports(texts: Texts) -> bool:
        """Whether there are few enough texts, and at least two for each label."""
        if not isinstance(texts.kind, Classify) or len(texts.examples) > MAX_TEXTS:
            return False
        counts = np.bincount(texts.targets, minlength=texts.outputs)
        return bool(counts.min() > 1 and counts.mean() <= MAX_TEXTS_PER_LABEL)


def methods_for(texts: Texts, model: Model, depth: int, seed: int) -> list[Method]:
    """All linear methods, from the quickest to the slowest in training.

    depth: the number of layers that may be used.
    """
    layers = np.unique(np.linspace(1, depth, min(_VECTOR_LAYERS, depth) + 1).round()[1:]).astype(int).tolist()
    words, vectors = WordsMethod(texts, model), VectorsMethod(texts, model, layers)
    methods = [words, vectors, BothMethod(texts, words, vectors)]
    if ContrastMethod.supports(texts):
        lower = model if depth == len(model.blocks) else with_changes(model, {"depth": depth}).to(model.device)
        methods.append(ContrastMethod(texts, words, lower, seed))
    return methods


def supports(kind: Kind[Any], features: Features) -> bool:
    """Whether linear methods can learn these labels: one output per text, and no pairs."""
    pairs = bool((features.seconds < features.lengths).any())
    return isinstance(kind, Classify | Labels | Regress) and not pairs


@dataclass(frozen=True)
class _Standardized:
    """Vectors with a mean of 0 and a standard deviation of 1, scaled by their width."""

    vectors: Tensor
    mean: Tensor
    deviation: Tensor

    @property
    def gram(self) -> Tensor:
        return self.vectors @ self.vectors.T

    def weights(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """The weight [D, C] and bias [C] for plain vectors."""
        weight = (self.vectors.T @ coefficients) / self.deviation.unsqueeze(1)
        return weight, -self.mean @ weight


def _standardized(vectors: Tensor) -> _Standardized:
    mean = vectors.mean(0)
    # Values that hardly differ would get weights so large that rounding errors matter.
    smallest = 0.1 * vectors.square().mean().sqrt().clamp(min=1e-6)
    deviation = vectors.std(0, correction=0).clamp(min=float(smallest)) * vectors.shape[1] ** 0.5
    return _Standardized((vectors - mean) / deviation, mean, deviation)


def _with_head(
    model: Model,
    kind: Kind[Any],
    bias: Tensor,
    seed: int,
    *,
    pool: str = "cls",
    weight: Tensor | None = None,
    words: Words | None = None,
) -> Model:
    """Give a model a head with these weights; without a weight, the head reads words alone."""
    settings: dict[str, Any] = {"pool": pool, "dropout": 0.1}
    if words is not None:
        settings |= {"words": {"vocab": words.vocab, "pairs": len(words.keys) - 1}, "states": weight is not None}
    set_head(model, kind, settings, seed)
    head = model.heads[kind.head]
    assert isinstance(head, TextHead)
    with torch.no_grad():
        head.output.bias.copy_(bias)
        head.output.weight.copy_(torch.zeros_like(head.output.weight) if weight is None else weight.T)
        if words is not None:
            assert head.words is not None
            head.words.load_state_dict(words.state_dict())
    return model


def add_words(model: Model, kind: Kind[Any], other: Model) -> Model:
    """A copy of a trained model whose outputs are the sum of its own and those of a model of words."""
    settings, head = dict(model.head_settings[kind.head]), model.heads[kind.head]
    words = other.heads[kind.head]
    assert isinstance(head, TextHead)
    assert isinstance(words, TextHead)
    assert words.words is not None
    result = with_changes(model, {})
    del result.heads[kind.head]
    joined = add_head(result, kind.head, settings | {"words": other.head_settings[kind.head]["words"]}, seed=0)
    joined.load_state_dict(head.state_dict() | {f"words.{k}": v for k, v in words.words.state_dict().items()})
    assert isinstance(joined, TextHead)
    with torch.no_grad():
        joined.output.bias.add_(words.output.bias)
    return result.eval()


def _select(features: Features, rows: NDArray[np.int64]) -> Features:
    starts, lengths = features.starts[rows], features.lengths[rows]
    return Features.of(
        [features.tokens[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)],
        features.seconds[rows].tolist(),
    )


def _run(runtime: TorchRuntime, model: Model, features: Features) -> Any:
    return run(runtime, features, Specials.of(model.require_tokenizer()))
