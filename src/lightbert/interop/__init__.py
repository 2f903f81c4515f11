"""Checkpoints of other libraries, both ways. Only `auto/` imports transformers, and only `hook` decides when."""
