"""Recorded streams judged: are promises kept, are histories equal, which properties hold.

Not `check`: that is the function that the package exports.
"""
