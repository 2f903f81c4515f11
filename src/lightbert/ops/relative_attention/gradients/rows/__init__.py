"""The backward pass of short rows."""
