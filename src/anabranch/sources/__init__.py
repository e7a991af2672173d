"""Outside records become elements: files and folders found out, read, generated and compared.

Nothing here needs Spark: what runs on a cluster calls these functions with plain arguments.
"""
