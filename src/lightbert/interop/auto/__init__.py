"""Our models as models of transformers. Nothing else in lightbert imports it."""
