"""The forward kernel for short rows."""
