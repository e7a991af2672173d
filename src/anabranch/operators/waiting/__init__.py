"""How long a query waits and how long it remembers: align, finalize, promises.

`level` has the two knobs, `hold` is align inside a query, `finalize` forces stables, and
`promised` makes stables of promises where a stream enters.
"""
