"""An answer from a context, or none."""
