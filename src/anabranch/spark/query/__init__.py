"""What a user builds: streams, steps, merges and queries, validated before anything runs.

    streams, copies    DataFrames as streams; inputs whose schemas agree
    sources            DataFrames that come and go between two starts
    clocked, endless   clocks that infer stables; the warning where nothing becomes final
    merge, replicas    `ab.merge`, of streams and of queries; `asked` has its options
    fluent, grouped    the steps of a query as methods; `native` where Spark evaluates them
    query              `ab.Query`: a plan with its sources
    merged, planned    a merge, a plan that was validated: its views, lanes and start
    laid_out           the stages of a plan as lanes

`anabranch.spark.run` starts them; `anabranch.spark.checkpoint` has what outlives a process.
"""
