"""Text sources: files, tables, datasets, docstrings."""
