"""Operators: from (state, batches) to (state, batch), without Spark, files or clocks."""
