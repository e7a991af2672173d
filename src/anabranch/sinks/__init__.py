"""Where the output of a query goes: one contract, and the sinks that need no Spark."""
