"""Merge: physically different, fallible copies of one stream into one.

`contract` says what every merge owes its caller.  Each case is there twice, element by element
as the reference and over batches:

    case         reference       over batches
    R0, R1, R2   r0, r1, r2      ordered_kernel (parts in ordered_*)
    R3           r3              r3_kernel (parts in r3_*); r3_separate is the baseline R3-
    R3, policy   r3              r3_policy_kernel (parts in r3_policy_*)
    R4           r4              r4_kernel (parts in r4_*); auto begins as R3

`choose` says which case fits, `policy` what the data cannot decide, `support` which case has
which policy, `verdict` what a violation means after a step, `account` adds steps up,
`route` spreads events over lanes; `due` and `slots` are what keeps a step from looking at all
that is alive.
"""
