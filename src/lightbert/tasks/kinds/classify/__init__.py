"""One of several labels for each text."""
