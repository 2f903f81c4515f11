"""From text to batches: sources, tokenizer, token shards, examples, masking, loading. Independent of the models."""
