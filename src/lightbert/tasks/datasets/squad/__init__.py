"""SQuAD 1.1 and 2.0: questions answered by a span of a text."""
