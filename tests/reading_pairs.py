"""A teacher and students that read the same twenty words, small enough to look at."""

from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from lightbert.models import Config, build, preset
from lightbert.nn.encoder import Encoder
from randomised import randomised

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "$", *(f"w{number}" for number in range(1, 15))]
_SIZES = {"vocab": 20, "positions": 12, "narrow": 8, "width": 16, "depth": 3, "n_heads": 4, "inner": 16}
TEACHER: Config = replace(preset("ib-bert-nano"), **_SIZES, block_width=24)
STUDENT: Config = replace(preset("mobilebert-nano"), **_SIZES, block_width=12)
MIXED: Config = replace(STUDENT, convolution="span", kernel=3, feedforwards=1, activation="gelu")
"""Two of its four heads attend, the other two are convolutions."""
BERT: Config = replace(preset("bert-small"), **_SIZES)


def tokenizer(words: list[str] = _WORDS) -> Tokenizer:
    """Words between spaces, by their place in a list."""
    result = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    result.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return result


def reader(config: Config, seed: int = 0, **changes: Any) -> Encoder:
    """A model that carries the tokenizer; of different seeds the weights differ."""
    model = randomised(build(replace(config, **changes)), seed)
    with torch.no_grad():
        for block in model.blocks:
            # Without norms the scores would be so large that fp32 has nothing left for all but one token.
            block.get_parameter("mixer.query.weight").mul_(0.05)
            block.get_parameter("mixer.query.bias").mul_(0.05)
    model.tokenizer = tokenizer()
    return model
