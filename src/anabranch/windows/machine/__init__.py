"""Predict, fed piece by piece.

machine          the query with its state
active, every    engines with one window at a time, and with all windows
accumulate       aggregates that grow and shrink
reported         results, and rejected tuples
"""
