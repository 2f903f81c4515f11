"""From text to batches: sources, tokenizer, token shards, examples, masking, loading. Knows nothing of models."""
