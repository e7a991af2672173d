"""Reference implementations: each operator in plain Python, one element at a time.

A reference keeps no columns and compiles nothing.  It states what is right; the kernels beside
it are compared with it by the laws in `tests/operators`.

    ordered      merge of streams in order: R0, R1 and R2
    r4           merge of streams that may hold several events of one identity (`r4_agree`)
    r3           the same for keyed streams, with every policy
    normalise    the normal form of a stream; cleanse: only final events, in order
    aggregate    the grouped snapshot aggregate, over a plain history
    membership   who takes part in a merge, and what no replica may send
"""
