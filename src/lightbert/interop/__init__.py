"""Read and write checkpoints of other libraries. Only `auto/` and `peers` import transformers, when they are used."""
