"""What an evaluation shows beside the metrics: the parts that several kinds share."""
