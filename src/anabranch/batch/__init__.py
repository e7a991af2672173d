"""The same elements as columns: NumPy and Arrow, no Spark, no files."""
