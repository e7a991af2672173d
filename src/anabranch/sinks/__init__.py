"""Sinks of a query: one contract, and the sinks that need no Spark."""
