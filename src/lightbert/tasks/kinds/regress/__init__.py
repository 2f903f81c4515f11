"""A number for each text."""
