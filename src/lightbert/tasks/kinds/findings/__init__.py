"""Error analysis beyond the metrics: the parts that several kinds share."""
