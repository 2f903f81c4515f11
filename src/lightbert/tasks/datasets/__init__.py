"""Where the examples of a task come from."""
