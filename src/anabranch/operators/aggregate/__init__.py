"""The grouped snapshot aggregate: one event per group between neighbouring end points.

functions    the aggregate functions as data: checks and types
exact        exact sums in digits of 32 bits: split values, round results
slots        the accumulators of count, sum, avg and stddev as columns of integers
bags         min, max, count_distinct, collect, quantile and user-defined ones, from values
chunks       sorted rows in chunks, of which a step rewrites those that it touches
points       end points with the sums behind them: what a step changes
bag_store    the events of the input, where functions need values
state        the step, on these
saving       the state in parts
promises     what the output promises
operator     the specification
"""
