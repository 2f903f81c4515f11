"""Train models of transformers with its own Trainer, as the baseline of benchmarks and results."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.data.features import Features
from lightbert.errors import required


@dataclass(frozen=True)
class PeerRecipe:
    """Hyperparameters of the Trainer's AdamW with linear warm-up and decay; `warmup` is a share of the steps.

    Except for the epochs, the defaults are the Trainer's.
    """

    epochs: float = 1.0
    lr: float = 5e-5
    warmup: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-8


_DEFAULT_RECIPE = PeerRecipe()


class PlainEncoder(nn.Module):
    """A model of transformers without a head: ids, mask and segments [B, T] to states [B, T, D]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Run the model."""
        states: Tensor = self.model(input_ids=ids, attention_mask=mask, token_type_ids=segments)[0]
        return states


def plain_encoder(folder: Path) -> PlainEncoder:
    """Read a model folder in the Hugging Face layout with transformers."""
    return PlainEncoder(_transformers().AutoModel.from_pretrained(folder).eval().requires_grad_(False))


@dataclass(frozen=True)
class Peer:
    """A classifier of transformers to train and evaluate on rows of tokens, and the settings of its Trainer.

    Batches are padded to their longest row (DataCollatorWithPadding). `group_by_length` batches rows of similar length,
    `bf16` computes in bfloat16. Everything else is the Trainer's default.
    """

    folder: Path
    """A model folder in the Hugging Face layout, with its tokenizer."""
    batch: int
    device: str
    group_by_length: bool = False
    bf16: bool = False

    def finetune(self, rows: Sequence[Sequence[int]], labels: Sequence[int], warm: int, seed: int) -> float:
        """Train one epoch and return the examples per second after the first `warm` steps."""
        clock = _clock(warm)
        trainer = self._trainer(_examples(rows, labels), seed=seed, callbacks=[clock])
        trainer.train()
        return (len(rows) - warm * self.batch) / float(clock.seconds)

    def predict(self, rows: Sequence[Sequence[int]]) -> float:
        """Predict all rows and return the examples per second."""
        trainer = self._trainer(_examples(rows, [0] * len(rows)), seed=0)
        start = time.perf_counter()
        trainer.predict(trainer.train_dataset)
        return len(rows) / (time.perf_counter() - start)

    def finetune_and_predict(
        self, train: Features, evaluation: Features, *, outputs: int, recipe: PeerRecipe, seed: int
    ) -> NDArray[np.float32]:
        """Fine-tune with a head of `outputs` outputs (1 = regression), then return the predictions for `evaluation`.

        Head weights that the folder lacks are initialized from the seed. The result is [rows, outputs].
        """
        trainer = self._trainer(_pairs(train), seed=seed, recipe=recipe, num_labels=outputs)
        trainer.train()
        # Grouping by length would also reorder the predictions.
        trainer.args.train_sampling_strategy = "random"
        return trainer.predict(_pairs(evaluation)).predictions  # type: ignore[no-any-return]

    def logits(self, row: Sequence[int]) -> np.ndarray[Any, Any]:
        """Return the logits of one row, to check that both sides have the same weights."""
        with torch.no_grad():
            return self._model().eval()(torch.tensor([row])).logits[0].numpy()  # type: ignore[no-any-return]

    def _model(self, **head: int) -> Any:
        return _transformers().AutoModelForSequenceClassification.from_pretrained(self.folder, **head)

    def _trainer(
        self,
        examples: list[dict[str, Any]],
        *,
        seed: int,
        recipe: PeerRecipe = _DEFAULT_RECIPE,
        callbacks: Any = (),
        **head: int,
    ) -> Any:
        library = _transformers()
        library.set_seed(seed)
        tokenizer = library.AutoTokenizer.from_pretrained(self.folder)
        arguments = library.TrainingArguments(
            output_dir=tempfile.gettempdir(),
            num_train_epochs=recipe.epochs,
            learning_rate=recipe.lr,
            warmup_steps=recipe.warmup,
            weight_decay=recipe.weight_decay,
            adam_epsilon=recipe.eps,
            per_device_train_batch_size=self.batch,
            per_device_eval_batch_size=self.batch,
            train_sampling_strategy="group_by_length" if self.group_by_length else "random",
            bf16=self.bf16,
            seed=seed,
            use_cpu=self.device == "cpu",
            dataloader_pin_memory=self.device != "cpu",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = library.Trainer(
            model=self._model(**head),
            args=arguments,
            train_dataset=examples,
            data_collator=library.DataCollatorWithPadding(tokenizer),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        # It prints the metrics of every run.
        trainer.remove_callback(library.PrinterCallback)
        return trainer


def _examples(rows: Sequence[Sequence[int]], labels: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"input_ids": list(row), "attention_mask": [1] * len(row), "labels": label}
        for row, label in zip(rows, labels, strict=True)
    ]


def _pairs(features: Features) -> list[dict[str, Any]]:
    """Return the rows with their segments and targets under the Trainer's names."""
    assert features.targets is not None
    rows = np.split(features.tokens, features.starts[1:-1])
    examples = _examples([row.tolist() for row in rows], features.targets.tolist())
    for example, second in zip(examples, features.seconds.tolist(), strict=True):
        example["token_type_ids"] = [int(place >= second) for place in range(len(example["input_ids"]))]
    return examples


def _clock(warm: int) -> Any:
    """Build a callback that measures the training time after step `warm`."""

    class Clock(_transformers().TrainerCallback):  # type: ignore[misc]
        seconds = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._start = _now()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == warm:
                self._start = _now()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.seconds = _now() - self._start

    return Clock()


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _transformers() -> Any:
    with required("the benchmark requires transformers and accelerate", "lightbert[hf]"):
        import accelerate  # noqa: F401
        import transformers
    # Its messages and progress bars would disturb the output of a benchmark.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def text_classifier(folder: Path, *, batch: int = 1) -> Callable[[Sequence[str]], list[dict[str, Any]]]:
    """Load a folder in the Hugging Face layout as a function from texts to predictions, on the CPU.

    batch: the number of texts per batch of the pipeline; 1 is its default.
    """
    with required("the comparison requires transformers", "lightbert[hf]"):
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pipeline: Any = transformers.pipeline("text-classification", model=str(folder), device="cpu", top_k=None)

    def classify(texts: Sequence[str]) -> list[dict[str, Any]]:
        found = pipeline(list(texts), batch_size=batch, truncation=True)
        return [_prediction(text, scores) for text, scores in zip(texts, found, strict=True)]

    return classify


def _prediction(text: str, scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    probabilities = {each["label"]: each["score"] for each in scores}
    label = max(probabilities, key=lambda each: float(probabilities[each]))
    return {"text": text, "label": label, "probability": probabilities[label], "probabilities": probabilities}
