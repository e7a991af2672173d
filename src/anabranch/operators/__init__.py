"""How a stream changes: (state, batches) to (state, batch), without Spark, files or clocks."""
