"""The query as data: nodes, the stages that they run in, and their description.

A plan knows operators by their contract.  What Spark evaluates (Columns, DataFrames) is opaque
here: a plan carries it and never looks into it.
"""
