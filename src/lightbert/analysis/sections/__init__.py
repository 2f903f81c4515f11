"""The analyses of a model: each turns a study into a section of a report."""
