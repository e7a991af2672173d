"""Outside records become elements: files and folders are inspected, validated and read.

Nothing here needs Spark: what runs on a cluster calls these functions with plain arguments.
"""
