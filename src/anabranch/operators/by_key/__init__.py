"""Operators that look at all rows of a key together.

key, keyed      the columns that name one event; at most one live event per key
rows_by_key     rows by key and start: what the operators below share
replaced_by     a row lives until the next one of its key
session         maximal runs of rows that are less than a gap apart
top_k           the first k rows of each group
"""
