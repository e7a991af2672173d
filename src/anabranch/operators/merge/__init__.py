"""Merge: physically different, fallible copies of one stream into one.

Each case is there twice: element by element in `operators.reference`, and over batches here.

    R0, R1, R2   `ordered_kernel`, over `ordered_state` (parts in ordered_*)
    R3, R4       `step`, with every policy, over one table of events:
                 `layout` and `bags` are its rows, also those with several events;
                 `judge`, `reconcile`, `bag_reconcile` and `govern` decide;
                 `emit` and `finish` return what came of it; `agenda` keeps what a stable must
                 look at, `state` and `codec` all that is remembered

`merge` is the specification that a pipeline runs, `lane` what the states of all cases share:
replicas (`members`) that come and go, and what a violation means after a step.  `choose` names
the case that fits, `policy` what the data cannot decide.
"""
