"""Any number of labels for each text."""
