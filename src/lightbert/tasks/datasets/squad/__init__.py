"""Questions about a text, answered by a stretch of it: SQuAD 1.1 and 2.0."""
