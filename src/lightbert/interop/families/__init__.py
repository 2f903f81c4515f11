"""The supported families of transformers by `model_type`."""

from lightbert.interop.families.bert import BERT
from lightbert.interop.families.convbert import CONVBERT
from lightbert.interop.families.electra import ELECTRA
from lightbert.interop.families.family import NATIVE_WORKS, Family, Heads, Settings
from lightbert.interop.families.mobilebert import MOBILEBERT

FAMILIES: dict[str, Family] = {family.model_type: family for family in (BERT, ELECTRA, CONVBERT, MOBILEBERT)}

__all__ = ["FAMILIES", "NATIVE_WORKS", "Family", "Heads", "Settings"]
