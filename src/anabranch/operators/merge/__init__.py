"""Merge: physically different, fallible copies of one stream into one.

`contract` says what every merge owes its caller; `r3` is the element-by-element reference and
`r3_kernel` the same over batches (with its parts in `r3_*`); `route` spreads events over lanes.
"""
