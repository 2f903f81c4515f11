"""The keys of recipes: ranges, meanings, and which of them may change when a run is resumed."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from lightbert.config import (
    MAY_CHANGE,
    Checked,
    Count,
    NonNegative,
    PartialShare,
    Positive,
    PositiveShare,
    Seed,
    Share,
    Size,
    Threads,
    check,
    check_texts,
    keys,
    may_change,
)
from lightbert.data.masking_settings import Masking
from lightbert.errors import InputError
from lightbert.objectives import ObjectiveName
from lightbert.objectives.distill.stages import Strategy, Transfer

if TYPE_CHECKING:
    from lightbert.data.examples import Builder


ALIASES = {
    **dict.fromkeys(("learning_rate", "rate", "peak_lr", "max_lr"), "lr"),
    **dict.fromkeys(("batch_size", "train_batch_size", "per_device_train_batch_size", "bs"), "batch"),
    **dict.fromkeys(("max_length", "max_seq_length", "max_len", "seq_len", "seq_length", "sequence_length"), "length"),
    **dict.fromkeys(("num_epochs", "n_epochs", "num_train_epochs", "max_epochs", "epoch"), "epochs"),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps", "num_train_steps", "iterations", "updates"), "steps"),
    **dict.fromkeys(("minutes", "time", "max_time"), "max_minutes"),
    **dict.fromkeys(("output", "out_dir", "output_dir", "outdir"), "out"),
    **dict.fromkeys(("model_name", "model_name_or_path", "checkpoint", "pretrained"), "model"),
    **dict.fromkeys(("student", "student_model"), "model"),
    **dict.fromkeys(("teacher_model", "teacher_path"), "teacher"),
    **dict.fromkeys(("dataset", "corpus", "data_dir", "data_path"), "data"),
    **dict.fromkeys(("train_file", "train_data", "training"), "data.train"),
    **dict.fromkeys(("val", "valid", "validation", "validation_file", "eval", "dev_file"), "data.dev"),
    **dict.fromkeys(("text_a", "text_column", "sentence", "sentence1"), "data.text"),
    **dict.fromkeys(("pair", "text_pair", "sentence2"), "data.text_b"),
    **dict.fromkeys(("labels", "label_column", "target"), "data.label"),
    **dict.fromkeys(("task_name", "task_type"), "task"),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "scheduler", "lr_schedule"), "schedule.kind"),
    **dict.fromkeys(("warmup_steps", "warmup_ratio", "num_warmup_steps", "warmup_proportion"), "schedule.warmup"),
    **dict.fromkeys(("optim", "optimizer_type"), "optimizer.kind"),
    **dict.fromkeys(("adam_beta1",), "optimizer.beta1"),
    **dict.fromkeys(("adam_beta2",), "optimizer.beta2"),
    **dict.fromkeys(("adam_epsilon", "epsilon"), "optimizer.eps"),
    **dict.fromkeys(("wd", "decay_rate"), "optimizer.weight_decay"),
    **dict.fromkeys(("max_grad_norm", "grad_clip", "clip_norm", "gradient_clip_val"), "optimizer.clip"),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulation_steps", "grad_accum"), "accumulate"),
    **dict.fromkeys(("save_steps", "save_every", "checkpoint_steps"), "checkpoint_every"),
    **dict.fromkeys(("save_total_limit",), "keep"),
    **dict.fromkeys(("eval_steps", "eval_every", "eval_interval"), "evaluate_every"),
    **dict.fromkeys(("logging_steps", "log_interval"), "log_every"),
    **dict.fromkeys(("num_workers", "dataloader_num_workers"), "workers"),
    **dict.fromkeys(("random_seed",), "seed"),
    **dict.fromkeys(("mlm_probability", "mask_prob", "masking_rate"), "masking.rate"),
    **dict.fromkeys(("gradient_checkpointing",), "checkpointing"),
    **dict.fromkeys(("metric_for_best_model",), "metric"),
    **dict.fromkeys(("max_query_length",), "answers.max_query"),
    **dict.fromkeys(("max_answer_length",), "answers.max_answer"),
    **dict.fromkeys(("doc_stride",), "answers.stride"),
    **dict.fromkeys(("n_best_size",), "answers.n_best"),
}
"""Alias -> key; a key is only suggested for recipes that have it."""


@dataclass(frozen=True)
class OptimizerSettings(Checked):
    """The optimizer and its hyperparameters."""

    kind: Annotated[
        Literal["adamw", "lamb", "muon"], "muon trains the matrices of blocks, AdamW the other parameters"
    ] = "adamw"
    beta1: Annotated[PartialShare, "decay rate of the running mean of gradients"] = 0.9
    beta2: Annotated[PartialShare, "decay rate of the running mean of squared gradients"] = 0.999
    eps: Annotated[Positive, "added to the denominator for numerical stability"] = 1e-6
    weight_decay: Annotated[NonNegative, "weight decay, except of biases, norms and frozen parameters"] = 0.01
    bias_correction: Annotated[
        bool, "bias correction of AdamW; off in ELECTRA and ConvBERT, on in PyTorch and Chang et al."
    ] = False
    clip: Annotated[NonNegative, "maximum global gradient norm; 0: no clipping"] = 1.0


@dataclass(frozen=True)
class Schedule(Checked):
    """A learning rate schedule with warm-up.

    Deviation: linear decays from the peak at the end of the warm-up. BERT's released code decays from step 0, so that
    its rate drops when the warm-up ends.
    """

    kind: Annotated[
        Literal["product", "linear", "wsd", "constant", "progressive"],
        "product: warm-up times linear decay (ELECTRA); linear: warm-up, then linear decay (BERT); wsd: warm-up, "
        "constant, linear decay; progressive: MobileBERT's schedule for the stage of a layer",
    ] = "product"
    warmup: Annotated[NonNegative, "steps, or a share of the run if below 1"] = 0.1
    decay: Annotated[Share, "wsd: the share of the run, at its end, in which the rate decays"] = 0.2
    floor: Annotated[Share, "final learning rate as a share of the peak"] = 0.0

    def factor(self, progress: float, steps: int) -> float:
        """Return the multiplier of the peak rate at ``progress`` (0 to 1) of a phase of ``steps`` steps."""
        warmup = self.warmup if self.warmup < 1 else self.warmup / max(1, steps)
        warm = min(1.0, progress / warmup) if warmup else 1.0
        left = 1.0 - progress
        match self.kind:
            case "product":
                shape = warm * left
            case "linear":
                shape = warm if warm < 1 else left / max(1e-9, 1 - warmup)
            case "wsd":
                shape = min(warm, left / self.decay) if self.decay else warm
            case "constant":
                shape = warm
            case "progressive":
                shape = min(warm, 0.9 + 0.1 * left**0.5)
        return self.floor * warm + (1 - self.floor) * max(0.0, shape)


@dataclass(frozen=True)
class BaseRecipe:
    """Keys of every recipe."""

    aliases: ClassVar[dict[str, str]] = ALIASES
    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "max_minutes")
    """The keys that set how long to train; at least one is required."""
    required: ClassVar[tuple[str, ...]] = ("out",)
    """The keys that must be given, in the recipe or on the command line."""

    model: Annotated[str, "a preset, or a trained model to start from"] = ""
    change: Annotated[
        dict[str, Any], "overrides of the model's config: change.kernel=5, change.dropout=0.2, any field of it"
    ] = field(default_factory=dict)
    out: Annotated[str, MAY_CHANGE, "the folder of the run; required"] = ""
    seed: Annotated[Seed, "random seed of weights, data order, masks, samples and dropout"] = 0
    steps: Annotated[Count, "optimizer steps; 0: until epochs or max_minutes is reached"] = 0
    max_minutes: Annotated[
        NonNegative,
        MAY_CHANGE,
        "time limit in minutes, evaluations and checkpoints included; with steps, whichever ends first; 0: no limit",
    ] = 0.0
    batch: Annotated[Size, "rows per step, over all processes"] = 128
    length: Annotated[Size, "tokens per row"] = 128
    lr: Annotated[Positive, "the peak learning rate"] = 3e-4
    schedule: Schedule = field(default_factory=Schedule)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    accumulate: Annotated[
        Size,
        MAY_CHANGE,
        "gradient accumulation: parts into which each process splits its batch; less memory, same result",
    ] = 1
    checkpoint_every: Annotated[Count, MAY_CHANGE, "steps between checkpoints; 0: only at the end"] = 1000
    keep: Annotated[Size, MAY_CHANGE, "number of checkpoints to keep while training"] = 2
    keep_checkpoints: Annotated[
        bool, MAY_CHANGE, "keep the checkpoints, with the optimizer state, after the end of the run"
    ] = False
    evaluate_every: Annotated[Count, "steps between evaluations; 0: only at the end"] = 1000
    log_every: Annotated[Count, MAY_CHANGE, "steps between log writes; 0: only at evaluations and checkpoints"] = 10
    device: Annotated[str, MAY_CHANGE, "auto: the GPU if there is one; or cpu, cuda, cuda:1"] = "auto"
    workers: Annotated[Threads, MAY_CHANGE, "threads that prefetch batches; affects speed only"] = 2
    threads: Annotated[
        Threads,
        MAY_CHANGE,
        "CPU threads of PyTorch; 0: PyTorch's default; models of about a million parameters are fastest with 1",
    ] = 0
    compile: Annotated[
        Literal["auto", "none", "blocks", "whole"],
        MAY_CHANGE,
        "torch.compile: auto is blocks on a GPU if batches have few shapes, otherwise none; blocks compiles within a "
        "minute; whole takes minutes and runs a little faster",
    ] = "auto"
    cuda_graph: Annotated[
        Literal["auto", True, False],
        MAY_CHANGE,
        "capture the whole step as a CUDA graph and replay it; auto: on a GPU with a single process, where the step "
        "can be captured",
    ] = "auto"
    tensorboard: Annotated[bool, MAY_CHANGE, "also write out/tensorboard"] = False

    def __post_init__(self) -> None:
        check(self)
        check_texts(self)
        for key in self.required:
            if not getattr(self, key):
                raise InputError(f"{key} is required; add {key}=FOLDER")
        if not any(getattr(self, key) for key in self.ends):
            *others, last = [f"{key}=" for key in self.ends]
            raise InputError(f"the length of training is required; add {', '.join(others)} or {last}")

    @property
    def may_change(self) -> frozenset[str]:
        """The keys whose values may change when a run is resumed."""
        return may_change(type(self))

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults by dotted key: what a run had whose version didn't know a key yet."""
        return {key.name: key.default for key in keys(type(self))}


@dataclass(frozen=True)
class CorpusRecipe(BaseRecipe):
    """Keys of every recipe that trains on prepared text."""

    required: ClassVar[tuple[str, ...]] = ("data", "out")

    data: Annotated[str, "a folder written by lightbert prepare; it sets the vocabulary; required"] = ""
    verify: Annotated[
        bool, MAY_CHANGE, "hash all data files at the start, also those that did not change since they were verified"
    ] = False
    epochs: Annotated[Count, "passes over the data; use instead of steps"] = 0
    examples: Annotated[
        Literal["segments", "segments-released", "lines", "pairs", "packed"],
        "how documents become rows: segments (ELECTRA), lines (Chang et al.), pairs (BERT, with next-sentence "
        "prediction), packed (full windows)",
    ] = "segments"
    dropout: Annotated[
        PartialShare | None, "overrides both dropout rates of the model's config; 0 is fastest on a CPU"
    ] = None
    masking: Masking = field(default_factory=Masking)
    whole_words: Annotated[bool, "mask whole words instead of single tokens"] = False
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=10_000))
    evaluate_batches: Annotated[Size, "held-out batches per evaluation"] = 20
    checkpointing: Annotated[
        bool, MAY_CHANGE, "recompute activations in the backward pass: less memory, about a third slower"
    ] = False
    sharding: Annotated[
        Literal["replicate", "shard"],
        MAY_CHANGE,
        "shard: split weights, gradients and optimizer state across processes (FSDP2) instead of replicating them",
    ] = "replicate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps and self.epochs:
            raise InputError(f"only one of steps and epochs can be set, got {self.steps} and {self.epochs}")
        captured = self.cuda_graph is True
        if self.sharding == "shard" and (captured or self.optimizer.kind == "muon"):
            what = "cuda_graph=true" if captured else 'optimizer.kind = "muon"'
            raise InputError(f"{what} requires unsharded tensors; use sharding=replicate or remove {what}")

    @property
    def longest(self) -> int:
        """The tokens of the longest row, for which the model needs positions."""
        return self.length

    def builder(self) -> "Builder":
        """Return the builder that turns documents into examples."""
        from lightbert.data.examples import LinePairs, Packing, Segments, SentencePairs

        builders: dict[str, Builder] = {"lines": LinePairs(), "pairs": SentencePairs(), "packed": Packing()}
        return builders.get(self.examples) or Segments(released=self.examples == "segments-released")


@dataclass(frozen=True)
class VectorSettings(Checked):
    """A teacher's vector of each text as a target for the mean of the model's states."""

    teacher: Annotated[
        str, 'a sentence encoder with the vocabulary of the data, whose vectors the model learns as well; "": none'
    ] = ""
    weight: Annotated[NonNegative, "weight of the vectors in the loss, in which that of mlm is 1"] = 20.0
    similarity: Annotated[
        NonNegative, "weight of the similarities between the texts of a batch, where that of their cosines is 1"
    ] = 2.0


@dataclass(frozen=True)
class Continuation(Checked):
    """A later phase, with its own schedule; 0, "" and None = use the recipe's value.

    data: another prepared folder with the same vocabulary. Only the folder of the current phase has to be there, so
    that a long run can read a corpus part by part.
    """

    length: Size
    steps: Size
    batch: Count = 0
    lr: NonNegative = 0.0
    data: str = ""
    warmup: NonNegative | None = None
    decay: Share | None = None


class PhaseValues(NamedTuple):
    """The resolved values of a phase; steps = 0 means until the time budget is used up."""

    length: int
    steps: int
    batch: int
    lr: float
    data: str
    schedule: Schedule


@dataclass(frozen=True)
class Recipe(CorpusRecipe):
    """Keys of pre-training."""

    model: str = "convbert-tiny"
    objective: Annotated[
        ObjectiveName,
        "rtd: replaced-token detection; mlm: masked-language modelling, with next-sentence prediction for pairs",
    ] = "rtd"
    generator: Annotated[
        PositiveShare, "size of the RTD generator: width, feed-forward and heads as a fraction of the model's"
    ] = 0.25
    generator_model: Annotated[
        str,
        "a trained generator to continue with; by default the folder generator in the model's folder or next to it, if "
        "there is one; none: random weights",
    ] = ""
    temperature: Annotated[
        Positive, "sampling temperature of the generator; above 1 replacements are easier to detect"
    ] = 1.0
    rtd_weight: Annotated[Positive, "weight of the discriminator's loss in rtd; the generator's is 1"] = 50.0
    shared_embeddings: Annotated[
        Literal["both", "generator"],
        "whose loss trains the embeddings that generator and discriminator share; generator: DeBERTa-v3, without its "
        "table of differences",
    ] = "both"
    vectors: VectorSettings = field(default_factory=VectorSettings)
    overlap: Annotated[
        Literal["auto", True, False],
        MAY_CHANGE,
        "run the backward passes of generator and discriminator at the same time, on two CUDA streams; auto: for rtd "
        "on a single GPU, unless compile=whole; the result is the same",
    ] = "auto"
    phases: Annotated[
        tuple[Continuation, ...],
        "later phases: a list of tables with length and steps, and batch, lr, data, warmup or decay where they differ; "
        "phases that have not begun may change when a run is resumed",
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap is True and self.compile == "whole":
            raise InputError("overlap=true can't be compiled as a whole; use compile=blocks or overlap=false")
        if self.vectors.teacher and (self.objective != "rtd" or self.examples == "packed"):
            raise InputError(
                "vectors.teacher requires objective=rtd and one example per row, got "
                f"objective={self.objective} and examples={self.examples}"
            )
        if not (self.steps or self.epochs) and self.phases:
            raise InputError("phases require steps= or epochs=; max_minutes doesn't set when the first phase ends")
        if not (self.steps or self.epochs) and self.schedule.warmup >= 1:
            raise InputError(
                f"schedule.warmup must be a share of the run (< 1) if only max_minutes is set, got "
                f"{self.schedule.warmup}; use for example schedule.warmup=0.1"
            )

    @property
    def longest(self) -> int:
        """The tokens of the longest row of any phase."""
        return max([self.length, *(phase.length for phase in self.phases)])

    def resolved_phases(self, steps_per_epoch: int) -> list[PhaseValues]:
        """Return all phases, the first one included, with default values filled in."""
        steps = self.steps or self.epochs * steps_per_epoch
        phases = [PhaseValues(self.length, steps, self.batch, self.lr, self.data, self.schedule)]
        for phase in self.phases:
            warmup = self.schedule.warmup if phase.warmup is None else phase.warmup
            decay = self.schedule.decay if phase.decay is None else phase.decay
            schedule = replace(self.schedule, warmup=warmup, decay=decay)
            batch, lr, data = phase.batch or self.batch, phase.lr or self.lr, phase.data or self.data
            phases.append(PhaseValues(phase.length, phase.steps, batch, lr, data, schedule))
        return phases


@dataclass(frozen=True)
class DistillRecipe(CorpusRecipe):
    """Keys of distillation."""

    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "transfer_steps")

    model: Annotated[str, "the student: a preset, or a trained model to start from"] = "mobilebert-nano"
    # The teacher's folder may move: its weights are identified by a hash saved with the recipe.
    teacher: Annotated[str, MAY_CHANGE, "a trained model; required unless strategy=bare"] = ""
    strategy: Annotated[
        Strategy,
        "bare: no teacher; pd: the teacher's predictions; akt: predictions and all layers in one loss; jkt: all "
        "layers, then pd; pkt: layer by layer, then pd",
    ] = "pkt"
    transfer_steps: Annotated[Count, "total steps of the layer transfer stages"] = 0
    steps: Annotated[Count, "steps of the prediction stage that follows"] = 0
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "pairs"
    transfer: Transfer = field(default_factory=Transfer)
    alpha: Annotated[Share, "weight of the MLM loss; the teacher's predictions get 1 - alpha (Eq. 4)"] = 0.5
    copy: Annotated[bool | None, "start from the teacher's embeddings and heads; none: only in jkt and pkt"] = None
    norm: Annotated[Literal["identity", "copy", "train"], "how to handle an embedding norm that can't be copied"] = (
        "identity"
    )
    layer_rate: Annotated[Positive, "pkt: learning rate multiplier of the current layer"] = 3.0
    lower: Annotated[Literal["soft", "frozen"], "pkt: train the layers below it at a reduced rate, or freeze them"] = (
        "soft"
    )
    soft: Annotated[PositiveShare, "pkt: learning rate of the layers below, as a fraction of the current layer's"] = 0.1
    dropout: Annotated[
        PartialShare | None, "dropout of the student; none: no dropout with a teacher, as in the released code"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs_teacher and not self.teacher:
            raise InputError(f"strategy '{self.strategy}' requires a teacher; add teacher=PATH")
        if self.starts_with_layers and not self.transfer_steps:
            raise InputError(
                f"strategy '{self.strategy}' requires transfer_steps >= 1, got 0; give at least one step per layer"
            )
        if self.compile == "whole" and self.strategy == "pkt":
            raise InputError("compile=whole recompiles at every stage of strategy 'pkt'; use compile=blocks")

    @property
    def needs_teacher(self) -> bool:
        """Whether the strategy uses a teacher."""
        return self.strategy != "bare"

    @property
    def transfers_layers(self) -> bool:
        """Whether feature maps or attention are transferred."""
        return self.strategy in ("akt", "jkt", "pkt")

    @property
    def starts_with_layers(self) -> bool:
        """Whether layers have their own stages, with the embeddings and heads frozen."""
        return self.strategy in ("jkt", "pkt")
