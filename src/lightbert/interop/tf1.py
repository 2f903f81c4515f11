"""Read the original TensorFlow 1 checkpoints of ELECTRA, ConvBERT and MobileBERT."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.errors import InputError, required, unknown
from lightbert.files import read_json
from lightbert.interop import tf1_models as released
from lightbert.interop.families import Settings
from lightbert.interop.vocabulary import read_tokenizer
from lightbert.models import Model, build
from lightbert.models.folder import fill

Array = NDArray[Any]

# The variables of Adam and LAMB, both TensorFlow's and the released code's, are named after the one they belong to.
_TRAINING_VARIABLES = re.compile(
    r".+/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1)|(.+/)?(global_step|beta1_power|beta2_power)"
)


def read_variables(prefix: Path) -> dict[str, Array]:
    """Read the variables of a model. `prefix` is the common prefix of the files (`.index`, `.data-00000-of-00001`)."""
    if not Path(f"{prefix}.index").is_file():
        raise InputError(
            f"'{prefix}.index' not found; give the common prefix of the checkpoint's files, such as "
            "'model.ckpt-1000000'"
        )
    # Silences TensorFlow's messages about the processor.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with required(f"reading the TensorFlow checkpoint '{prefix}' requires tensorflow", "lightbert[tf1]"):
        import tensorflow
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        return {name: reader.get_tensor(name) for name in model_variables(reader.get_variable_to_shape_map())}
    # The reader raises some errors of the C++ side unchanged.
    except (tensorflow.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        raise InputError(f"the checkpoint '{prefix}' is truncated or a file is missing; copy it again") from error


def model_variables(names: Iterable[str]) -> list[str]:
    """Return the sorted names of the model's variables, without those of the optimizer and step counters."""
    return sorted(name for name in names if not _TRAINING_VARIABLES.fullmatch(name))


def read_tf1(
    prefix: str | Path, *, part: str = "discriminator", config: str | Path | Mapping[str, Any] | None = None
) -> Model:
    """Read a checkpoint with the heads it was pre-trained with. Requires tensorflow.

    prefix: the path of the checkpoint's files without `.index`; a `vocab.txt` in the same folder becomes the tokenizer.
    part: "discriminator" or "generator" of ELECTRA or ConvBERT; MobileBERT has no generator.
    config: the release's JSON config, as a path or a mapping, for settings that the shapes don't determine. The
    published models need none. It must agree with the shapes, so a generator needs a config of the generator.

    ConvBERT and MobileBERT get ``padding = "released"``, because their weights were trained to read the padding.
    """
    prefix = Path(prefix)
    settings = dict(config) if isinstance(config, Mapping) else read_json(Path(config)) if config is not None else {}
    model = read_checkpoint(read_variables(prefix), part=part, config=settings, where=prefix)
    model.tokenizer = read_tokenizer(prefix.parent)
    return model


def read_checkpoint(
    variables: Mapping[str, Array], *, part: str = "discriminator", config: Settings | None = None, where: Path = Path()
) -> Model:
    """Read a model from named arrays; an unknown name that isn't the optimizer's is an error."""
    if part not in released.PARTS:
        raise unknown("part", part, released.PARTS)
    names = model_variables(variables)
    if "electra/embeddings/word_embeddings" in names:
        names, identify = released.names_of_part(names, part), released.identify_electra
    elif any(name.startswith("bert/encoder/layer_0/bottleneck/") for name in names):
        if part == "generator":
            raise InputError("MobileBERT has no generator; leave out part='generator'")
        identify = released.identify_mobilebert
    else:
        raise InputError("the checkpoint must be of ELECTRA, ConvBERT or MobileBERT; lightbert can't read others")
    tensors = {name: torch.from_numpy(np.array(variables[name], dtype=np.float32)) for name in names}
    source = identify(tensors, config or {})
    model = build(source.config, heads=source.heads, device="meta")
    fill(model, source.keymap.to_ours(tensors, model.state_dict(), last=source.last), where)
    model.origin = source.family
    return model.eval()
