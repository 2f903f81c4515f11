"""Heads: from the encoder's states to logits. The losses are in `objectives`.

Pre-training: masked language modelling and replaced-token detection. Fine-tuning: one output per text, one per token,
and question answering.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.feedforward import activation_layer
from lightbert.nn.init import Initial, glorot
from lightbert.nn.pooling import TEXT_POOLS, PackedTexts, TextPool, pool_texts, pooled_width
from lightbert.nn.words import Words


class MaskedLanguage(nn.Module):
    """Logits over the vocabulary, tied to the word embeddings (BERT §3.1; MobileBERT's released decoder).

    `forward` takes the embedding table as an argument, so that the parameter belongs to the embeddings alone.
    If `hidden` > `narrow`, the decoder is the tied table plus an untied matrix `extra`: 512 = 128 + 384 in MobileBERT.
    """

    def __init__(
        self,
        width: int,
        vocab: int,
        narrow: int,
        *,
        hidden: int | None = None,
        activation: str = "gelu",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        hidden = narrow if hidden is None else hidden
        if hidden < narrow:
            raise InputError(f"hidden ({hidden}) must be >= the width of the word embeddings ({narrow})")
        self.narrow = narrow
        self.transform = nn.Linear(width, hidden)
        self.activation = activation_layer(activation)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.extra = nn.Parameter(torch.empty(vocab, hidden - narrow)) if hidden > narrow else None

    def features(self, states: Tensor) -> Tensor:
        """States [..., D] to the input of the decoder [..., hidden]."""
        features: Tensor = self.norm(self.activation(self.transform(states)))
        return features

    def decoder(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """The weight [V, hidden] and the bias [V] of the decoder as one linear layer."""
        return table if self.extra is None else torch.cat([table, self.extra], dim=1), self.bias

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """States [..., D] to logits [..., V]; gather the masked positions first, because the logits are expensive."""
        features = self.features(states)
        if self.extra is None:
            return F.linear(features, table, self.bias)
        tied, untied = features[..., : self.narrow], features[..., self.narrow :]
        return F.linear(tied, table, self.bias) + F.linear(untied, self.extra)


class ReplacedToken(nn.Module):
    """One logit per token, high if the generator replaced it (ELECTRA §2; ConvBERT §4.1)."""

    def __init__(self, width: int, *, activation: str = "gelu") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation_layer(activation)
        self.output = nn.Linear(width, 1)

    def initial_weights(self) -> Initial:
        """Glorot-uniform for the output layer: TensorFlow's default, as released."""
        return {"output.weight": glorot(self.output.weight)}

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] to [...]."""
        scores: Tensor = self.output(self.activation(self.dense(states)))
        return scores.squeeze(-1)


class Pooler(nn.Module):
    """BERT's pooler, the tanh of a dense layer on [CLS]; needed to write imported weights back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor, *, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
        """[..., T, D] to [..., D]; `mask` and `places` as of `TextHead`."""
        return torch.tanh(self.dense(pool_texts(states, "cls", mask, places)))


class TextHead(nn.Module):
    """One vector per text to `outputs` numbers: the base class of the heads below.

    `pool` computes the vector from the states of the text (`lightbert.nn.pooling`); "cls", as published, reads [CLS].
    `words`, if set, has the arguments `vocab` and `pairs` of `lightbert.nn.words.Words`, whose scores are added to the
    outputs. With `states` = False they are the only input, and the encoder isn't needed.
    `hidden` selects one of the published variants:
    None      dropout, output                      ELECTRA, ConvBERT and MobileBERT as released
    "tanh"    dense, tanh, dropout, output         BERT's pooler; the composite paper
    "gelu"    dropout, dense, gelu, dropout, output   the transformers port of ConvBERT and ELECTRA
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        hidden: str | None = None,
        dropout: float = 0.1,
        pool: TextPool = "cls",
        words: Mapping[str, int] | None = None,
        states: bool = True,
    ) -> None:
        super().__init__()
        if not states and (words is None or hidden):
            raise InputError("states=false requires words, and no hidden layer")
        if hidden not in (None, "tanh", "gelu"):
            raise unknown("hidden layer", hidden, ("tanh", "gelu"))
        if pool not in TEXT_POOLS:
            raise unknown("pool", pool, TEXT_POOLS)
        # Without states, the output layer is its bias alone.
        pooled = pooled_width(width, pool) if states else 1
        self.pool, self.reads_states = pool, states
        self.words = None if words is None else Words(**words, outputs=outputs)
        self.before = nn.Dropout(dropout) if hidden == "gelu" else nn.Identity()
        self.dense = nn.Linear(pooled, width) if hidden else None
        self.activation = nn.Tanh() if hidden == "tanh" else activation_layer("gelu")
        self.after = nn.Dropout(dropout)
        self.output = nn.Linear(width if hidden else pooled, outputs)

    def forward(
        self,
        states: Tensor | None,
        *,
        mask: Tensor | None = None,
        places: PackedTexts | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """[..., T, D] to [..., outputs].

        mask [..., T]: 0 in the padding; None = nothing is padded.
        places: where the texts of packed rows are, which the mask numbers: [B, T, D] to [N, outputs].
        ids: the tokens [B, T] of a head with words.
        """
        if self.words is not None:
            assert ids is not None
            words: Tensor = self.words(ids, mask, places)
            if not self.reads_states:
                return words + self.output.bias
        assert states is not None
        vector = pool_texts(states, self.pool, mask, places)
        if self.dense is not None:
            vector = self.activation(self.dense(self.before(vector)))
        logits: Tensor = self.output(self.after(vector))
        return logits if self.words is None else logits + words


class Classification(TextHead):
    """One logit per label for each text."""

    def __init__(self, width: int, labels: int, **settings: Any) -> None:
        if labels < 2:
            raise InputError(f"labels must be >= 2, got {labels}; use the regress head for a single number")
        super().__init__(width, labels, **settings)


class Projection(TextHead):
    """A vector of another size for each text, such as that of a teacher; `activation` is "none" or "tanh"."""

    def __init__(self, width: int, size: int, *, pool: TextPool = "mean", activation: str = "none") -> None:
        if size < 1:
            raise InputError(f"size must be >= 1, got {size}")
        if activation not in ("none", "tanh"):
            raise unknown("activation", activation, ("none", "tanh"))
        super().__init__(width, size, dropout=0.0, pool=pool)
        self.tanh = activation == "tanh"

    def forward(self, states: Tensor | None, **inputs: Any) -> Tensor:
        """[..., T, D] to [..., size]."""
        vectors = super().forward(states, **inputs)
        return vectors.tanh() if self.tanh else vectors


class NextSentence(TextHead):
    """Two logits in BERT's order: 0 = the second segment follows the first, 1 = it doesn't.

    `pooled` is BERT's and IB-BERT's head; MobileBERT as released reads the raw [CLS] state.
    """

    def __init__(self, width: int, *, pooled: bool = True) -> None:
        super().__init__(width, 2, hidden="tanh" if pooled else None, dropout=0.0)


class Regression(TextHead):
    """One unbounded number per text."""

    def __init__(self, width: int, **settings: Any) -> None:
        super().__init__(width, 1, **settings)

    def forward(self, states: Tensor | None, **inputs: Any) -> Tensor:
        """[..., T, D] to [...]."""
        return super().forward(states, **inputs).squeeze(-1)


class MultipleChoice(TextHead):
    """One score per choice; each choice is a separate text.

    Deviation: reads [CLS]. The transformers port of ConvBERT reads the last position, which is padding for all but
    the longest choice.
    """

    def __init__(self, width: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        super().__init__(width, 1, hidden=hidden, dropout=dropout)

    def forward(
        self,
        states: Tensor | None,
        choices: int | None = None,
        *,
        mask: Tensor | None = None,
        places: PackedTexts | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """States [B, C, T, D], or [B·C, T, D] with the number of `choices`, to logits [B, C]."""
        if states is not None and states.dim() == 3 and choices is None:
            raise InputError("choices is required for states of shape [texts, tokens, width]")
        scores = super().forward(states, mask=mask, places=places).squeeze(-1)
        return scores if choices is None else scores.reshape(-1, choices)


class TokenClassification(nn.Module):
    """Dropout and a dense layer on every state (BERT §5.3)."""

    def __init__(self, width: int, labels: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, labels)

    def forward(self, states: Tensor) -> Tensor:
        """[..., T, D] to [..., T, labels]."""
        logits: Tensor = self.output(self.dropout(states))
        return logits


def mask_logits(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Set the logits of positions that aren't allowed to the lowest finite number.

    Deviation: the releases add −1000, which a large logit can exceed. The number is finite so that a row without
    allowed positions gets uniform probabilities instead of NaN.
    """
    return logits if allowed is None else logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)


def answer_positions(segments: Tensor, mask: Tensor | None) -> Tensor:
    """Return where an answer may start and end [B, T]: the second segment, and [CLS], which means "no answer"."""
    allowed = segments == 1
    if mask is not None:
        allowed = allowed & (mask != 0)
    # Not in place, because an exported graph would need a copy.
    first = torch.arange(segments.shape[1], device=segments.device) == 0
    return allowed | first


class SpanLogits(NamedTuple):
    """Start and end logits, each [..., T]."""

    start: Tensor
    end: Tensor


class Span(nn.Module):
    """Independent start and end logits for each token, from one dense layer (BERT §4.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, states: Tensor, allowed: Tensor | None = None) -> SpanLogits:
        """`allowed` bool [..., T]: True where an answer may start and end; includes [CLS] if it means "no answer"."""
        start, end = self.output(states).unbind(-1)
        return SpanLogits(mask_logits(start, allowed), mask_logits(end, allowed))


class JointLogits(NamedTuple):
    """Logits of ELECTRA's joint head for S considered starts: 1 in training, up to `beam` in a search."""

    start: Tensor
    """[B, T]"""
    considered: Tensor
    """[B, S] positions of the considered starts"""
    end: Tensor
    """[B, S, T] end logits for each considered start"""
    impossible: Tensor
    """[B] high if the text contains no answer (answerable_logit in the release; its label is is_impossible)"""


class Candidates(NamedTuple):
    """Spans of a beam search, best first, each [B, S·E]. An end may precede its start; the decoder drops such spans."""

    start: Tensor
    end: Tensor
    score: Tensor
    """log p(start) + log p(end | start)"""


class BeamSpan(nn.Module):
    """ELECTRA's question answering head: p(start), p(end | start) and p(no answer).

    The end logits are computed from the state of each token and the state at the start: the true start in training,
    the `beam` most probable starts in a search. Allowed positions are [CLS] and the tokens of the second segment.
    """

    def __init__(self, width: int, *, inner: int = 512, beam: int = 20, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.beam = beam
        self.dropout = nn.Dropout(dropout)
        self.activation = activation_layer("gelu")
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, inner)
        self.end_output = nn.Linear(inner, 1)
        self.answer_dense = nn.Linear(2 * width, inner)
        self.answer_output = nn.Linear(inner, 1)

    def initial_weights(self) -> Initial:
        """Glorot-uniform for the whole head: TensorFlow's default, as released."""
        return {name: glorot(weight) for name, weight in self.named_parameters() if name.endswith(".weight")}

    def forward(self, states: Tensor, allowed: Tensor | None = None, gold: Tensor | None = None) -> JointLogits:
        """`gold` int64 [B]: the true starts, for training; without it the most probable starts are used."""
        states = self.dropout(states)  # [B, T, D]
        start = mask_logits(self.start(states).squeeze(-1), allowed)
        considered = self._most_probable(start) if gold is None else gold[:, None]  # [B, S]
        end = self._end(states, considered)
        if allowed is not None:
            end = mask_logits(end, allowed[:, None, :])
        return JointLogits(start, considered, end, self._impossible(states, start))

    def search(self, logits: JointLogits) -> Candidates:
        """Pair every considered start with its `beam` most probable ends."""
        starts = logits.start.float().log_softmax(-1).gather(1, logits.considered)  # [B, S]
        ends = logits.end.float().log_softmax(-1)
        ends, positions = ends.topk(min(self.beam, ends.shape[-1]))  # [B, S, E]
        score, order = (starts[:, :, None] + ends).flatten(1).sort(descending=True)  # [B, S·E]
        start = logits.considered[:, :, None].expand_as(positions).flatten(1)
        return Candidates(start.gather(1, order), positions.flatten(1).gather(1, order), score)

    def _most_probable(self, start: Tensor) -> Tensor:
        # A text can have fewer tokens than the beam. The minimum stays symbolic in an exported graph.
        return start.topk(min(self.beam, start.shape[-1])).indices

    def _end(self, states: Tensor, considered: Tensor) -> Tensor:
        at_start = states.gather(1, considered[:, :, None].expand(-1, -1, self.width))  # [B, S, D]
        # dense([h_start ; h_t]) = dense([h_start ; 0]) + dense([0 ; h_t]) - dense(0) avoids the [B, S, T, 2D] pairs.
        # Calling the layer, instead of reading its weights, supports adapters and quantized layers.
        bias = self.end_dense(states.new_zeros(2 * self.width))
        given = self.end_dense(F.pad(at_start, (0, self.width)))[:, :, None]  # [B, S, 1, inner]
        of_token = (self.end_dense(F.pad(states, (self.width, 0))) - bias)[:, None]  # [B, 1, T, inner]
        pairs = self.activation(given + of_token)  # [B, S, T, inner]
        logits: Tensor = self.end_output(pairs)
        return logits.squeeze(-1)

    def _impossible(self, states: Tensor, start: Tensor) -> Tensor:
        probabilities = start.float().softmax(-1).to(states.dtype)  # [B, T]
        expected = (probabilities[:, None] @ states).squeeze(1)  # [B, D]
        pair = torch.cat((states[:, 0], expected), dim=-1)
        logits: Tensor = self.answer_output(self.activation(self.answer_dense(pair)))
        return logits.squeeze(-1)
