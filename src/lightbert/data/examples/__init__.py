"""Which tokens make an example."""
