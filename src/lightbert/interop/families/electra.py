"""ELECTRA: our BERT with factorized embeddings, heads for generator and discriminator, and no pooler."""

from lightbert.interop.families.family import Family, Heads, Settings
from lightbert.interop.families.rows import (
    ATTENTION,
    EMBEDDINGS,
    EMBEDDINGS_PROJECT,
    FEEDFORWARD,
    GENERATOR_PREDICTIONS,
    POSITION_IDS,
    TOKEN_HEADS,
    UNPOOLED_HEADS,
)
from lightbert.interop.keymap import Keymap, Row, TiedCopy

_DISCRIMINATOR_PREDICTIONS = (
    Row("heads.rtd.dense.{p}", "discriminator_predictions.dense.{p}"),
    Row("heads.rtd.output.{p}", "discriminator_predictions.dense_prediction.{p}"),
)


def _heads(ours: Settings, theirs: Settings) -> Heads:
    # The generator head and the classifier always use gelu, independently of hidden_act.
    return {
        "mlm": {"hidden": ours["narrow"], "activation": "gelu", "eps": ours["eps"]},
        "rtd": {"activation": ours["activation"]},
        "classify": {"hidden": "gelu"},
        "regress": {"hidden": "gelu"},
        "tokens": {},
        "span": {},
    }


ELECTRA = Family(
    model_type="electra",
    stem="Electra",
    ours="bert",
    keymap=Keymap(
        rows=(
            *EMBEDDINGS,
            EMBEDDINGS_PROJECT,
            *ATTENTION,
            *FEEDFORWARD,
            *GENERATOR_PREDICTIONS,
            *_DISCRIMINATOR_PREDICTIONS,
            *UNPOOLED_HEADS,
            *TOKEN_HEADS,
        ),
        redundant=(POSITION_IDS, TiedCopy("generator_lm_head.weight", "embeddings.word_embeddings.weight")),
    ),
    defaults={
        "embedding_size": 128,
        "hidden_size": 256,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    heads=_heads,
    fields={"narrow": "embedding_size"},
)
