"""Thin wrappers around our models with transformers' inputs, outputs and losses; registered on import."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from lightbert.interop.auto_config import LightbertConfig
from lightbert.interop.heads import text_head
from lightbert.models.folder import from_description
from lightbert.nn.encoder import Encoder
from lightbert.nn.fused import install_on_gpu
from lightbert.nn.heads import MaskedLanguage
from lightbert.nn.inference import infer
from lightbert.nn.init import initialize, seed_from_torch
from lightbert.nn.record import Record


class LightbertModel(PreTrainedModel):  # type: ignore[misc]
    """The encoder without heads; the other classes add one head, which is part of the encoder."""

    config_class = LightbertConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False
    # A folder may contain other heads, such as those of pre-training: each class loads its own only.
    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"heads\."]
    kind: ClassVar[str] = ""
    """The head of the class; empty = none."""

    def __init__(self, config: LightbertConfig) -> None:
        config = config.with_heads(self.heads(config))
        super().__init__(config)
        self.model = from_description(config.description(), Path(config.name_or_path))
        device = torch.get_default_device()
        if device.type != "meta":
            self.model.to_empty(device=device)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *arguments: Any, **settings: Any) -> Any:
        """As of transformers; with the kernels, if the weights are loaded to a GPU."""
        loaded = super().from_pretrained(*arguments, **settings)
        install_on_gpu(loaded[0] if isinstance(loaded, tuple) else loaded)
        return loaded

    @classmethod
    def heads(cls, config: LightbertConfig) -> dict[str, dict[str, Any]]:
        """Return the head of this class with its settings; other heads of the folder are not loaded."""
        if not cls.kind:
            return {}
        kind = text_head(config.num_labels) if cls.kind == "classify" else cls.kind
        labels = {"labels": config.num_labels} if kind in ("classify", "tokens") else {}
        return {kind: {**config.heads.get(kind, {}), **labels}}

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> Any:
        """Ids [B, T] -> `last_hidden_state` [B, T, D]; padding must be on the right."""
        options = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        states, recorded = self._run(input_ids, attention_mask, token_type_ids, **options)
        return BaseModelOutput(states, **recorded)

    def _run(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> tuple[Any, dict[str, tuple[Tensor, ...] | None]]:
        """Return the output of the encoder or of the head, and the recorded states and attentions."""
        states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        attentions = self.config.output_attentions if output_attentions is None else output_attentions
        record = Record([] if states else None, [] if attentions else None, None) if states or attentions else None
        mask = None if attention_mask is None else attention_mask.bool()
        inputs, kind = (input_ids, mask, token_type_ids, record), next(iter(self.model.heads), None)
        output = self.model(*inputs) if kind is None else infer(self.model, kind, *inputs)
        return output, {
            "hidden_states": tuple(record.states) if record and record.states else None,
            "attentions": tuple(record.attention) if record and record.attention else None,
        }

    def get_input_embeddings(self) -> nn.Module:
        """Return the word embeddings."""
        return self.model.embeddings.get_submodule("word")

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings; `resize_token_embeddings` changes their number."""
        self.model.embeddings.set_submodule("word", value)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the word embeddings and the MLM head.

        mean_resizing: the weights of new tokens in the MLM head are the means of the others, else 0.
        """
        embeddings: nn.Embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        vocab = embeddings.num_embeddings
        self.model.config = replace(self.model.config, vocab=vocab)
        for head in self.model.heads.values():
            if isinstance(head, MaskedLanguage):
                _resize_rows(head.bias, vocab, mean_resizing)
                if head.extra is not None:
                    _resize_rows(head.extra, vocab, mean_resizing)
        return embeddings

    def save_pretrained(
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write a lightbert folder, with our parameter names and our config.json."""
        wrapped = self.state_dict() if state_dict is None else state_dict
        ours = {name.removeprefix("model."): tensor for name, tensor in wrapped.items()}
        super().save_pretrained(save_directory, is_main_process, state_dict=ours, **kwargs)

    def _initialize_weights(self, module: nn.Module, *_: Any) -> None:
        # Called for every module, children first. transformers marks the weights it has loaded; one call initializes
        # the others by our own rules.
        if isinstance(module, Encoder):
            initialize(module, seed_from_torch(), keep=lambda weight: getattr(weight, "_is_hf_initialized", False))

    def _set_gradient_checkpointing(self, enable: bool = True, **_: Any) -> None:
        self.model.checkpointing = enable


def _resize_rows(parameter: nn.Parameter, rows: int, new_are_means: bool) -> None:
    """Change the first dimension of a parameter in place, as transformers does for embeddings."""
    old = parameter.data
    row = old.mean(0) if new_are_means else torch.zeros_like(old[0])
    parameter.data = torch.cat([old[:rows], row.expand(max(0, rows - len(old)), *old.shape[1:])])


class _WithLabels(LightbertModel):
    """A model with one kind of logits, and a loss if there are labels."""

    output_class: ClassVar[type]

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Ids and labels [B, T], or labels [B] of texts, -100 = ignored -> loss and logits."""
        (logits,), recorded = self._run(input_ids, attention_mask, token_type_ids, **options)
        logits = logits[:, None] if logits.dim() == 1 else logits
        return self.output_class(None if labels is None else self._loss(logits, labels), logits, **recorded)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class LightbertForMaskedLM(_WithLabels):
    """Logits over the vocabulary for every token; labels [B, T] are the ids to predict."""

    kind, output_class = "mlm", MaskedLMOutput


class LightbertForTokenClassification(_WithLabels):
    """One logit per label for every token; labels [B, T] are classes."""

    kind, output_class = "tokens", TokenClassifierOutput


class LightbertForSequenceClassification(_WithLabels):
    """One logit per label for each text, or one number if there is one label.

    Labels [B] are classes or numbers; floats [B, labels] are multi-label targets.
    """

    kind, output_class = "classify", SequenceClassifierOutput

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            return F.mse_loss(logits.squeeze(1), labels.flatten().to(logits.dtype))
        if labels.is_floating_point():
            return F.binary_cross_entropy_with_logits(logits, labels)
        return super()._loss(logits, labels)


class LightbertForQuestionAnswering(LightbertModel):
    """Start and end logits of an answer."""

    kind = "span"

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Positions [B] of the answer's first and last token; positions outside the row are ignored in the loss."""
        (start, end), recorded = self._run(input_ids, attention_mask, token_type_ids, **options)
        loss = None
        if start_positions is not None and end_positions is not None:
            outside = input_ids.shape[1]
            targets = [positions.flatten().clamp(0, outside) for positions in (start_positions, end_positions)]
            pairs = zip((start, end), targets, strict=True)
            loss = sum(F.cross_entropy(logits, target, ignore_index=outside) for logits, target in pairs) / 2
        return QuestionAnsweringModelOutput(loss, start, end, **recorded)


for _auto, _model in {
    AutoModel: LightbertModel,
    AutoModelForMaskedLM: LightbertForMaskedLM,
    AutoModelForSequenceClassification: LightbertForSequenceClassification,
    AutoModelForTokenClassification: LightbertForTokenClassification,
    AutoModelForQuestionAnswering: LightbertForQuestionAnswering,
}.items():
    _auto.register(LightbertConfig, _model, exist_ok=True)
