"""A query that runs: its start, its triggers, what looks after it, its end, its upgrade.

prepare, running     what is validated before a start; the one class of a query that runs
watch, ticks         what looks for files and replicas; when clocks are read without a row
unread, patience     whose rows wait at their sources; how long a copy may hold the output
write_trigger        what happens at the end of a trigger
shares, budget       warnings about left out rows, and about triggers above their limit
follow, listen       records read where Spark's driver is another process; Spark's metrics
ending               failures in our words
upgrade, export      other lanes or columns for a run that was stopped
"""
