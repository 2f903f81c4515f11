"""Single-label classification of texts."""
