"""Multi-label classification of texts."""
