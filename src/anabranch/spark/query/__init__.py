"""Queries: the merge, the run record, the control log, the running query and its end.

Its modules, from what a user builds to what is left at the end:

    streams, copies    DataFrames as streams; inputs whose schemas agree
    merge              `ab.merge` and its views
    prepare, running   what is checked before a start; the one class of a query that runs
    run_record, lock   what fixes a run; one driver at a time
    remote, lease      the same where only Spark reaches the checkpoint
    control_log, watch which files and replicas there are, in which order; what looks for them
    clocked, ticks     clocks that infer stables; when they are read although no row comes
    unread             whose rows wait at their sources
    write_trigger      what happens at the end of a trigger
    follow, listen     records read where Spark's driver is another process; Spark's metrics
    ending             failures in our words
"""
