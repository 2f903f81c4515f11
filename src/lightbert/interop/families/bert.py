"""BERT: embeddings of the full width, and a pooler that all [CLS] heads share."""

from lightbert.interop.families.family import Family, Heads, Settings
from lightbert.interop.families.rows import (
    ATTENTION,
    EMBEDDINGS,
    FEEDFORWARD,
    POOLED_HEADS,
    POSITION_IDS,
    PREDICTIONS,
    TOKEN_HEADS,
)
from lightbert.interop.keymap import Keymap, TiedCopy


def _heads(ours: Settings, theirs: Settings) -> Heads:
    return {
        "pooler": {},
        "mlm": {"hidden": ours["width"], "activation": ours["activation"], "eps": ours["eps"]},
        "nsp": {"pooled": True},
        "classify": {"hidden": "tanh"},
        "regress": {"hidden": "tanh"},
        "choice": {"hidden": "tanh"},
        "tokens": {},
        "span": {},
    }


BERT = Family(
    model_type="bert",
    stem="Bert",
    ours="bert",
    keymap=Keymap(
        rows=(*EMBEDDINGS, *ATTENTION, *FEEDFORWARD, *PREDICTIONS, *POOLED_HEADS, *TOKEN_HEADS),
        redundant=(
            POSITION_IDS,
            TiedCopy("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            TiedCopy("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
    ),
    defaults={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    heads=_heads,
    read=lambda theirs: {"narrow": theirs["hidden_size"]},
    fits=lambda ours: bool(ours["narrow"] == ours["width"]),
)
