"""Text as people keep it: files, tables, datasets, documentation."""
