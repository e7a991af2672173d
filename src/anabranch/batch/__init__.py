"""Elements as columns of NumPy and Arrow: no Spark, no files."""
