"""Register our config with AutoConfig on import, and our models when the first of our configs is opened."""

import importlib

from transformers import AutoConfig

from lightbert.interop.auto.config import LightbertConfig


def _register_models() -> None:
    importlib.import_module("lightbert.interop.auto.models")


LightbertConfig.on_open = _register_models
AutoConfig.register(LightbertConfig.model_type, LightbertConfig, exist_ok=True)
