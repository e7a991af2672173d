"""What the benchmarks of Spark's triggers share: input by turns, the sides, the race."""
