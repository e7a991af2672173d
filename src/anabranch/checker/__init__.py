"""Validation of recorded streams: promises, equal histories, properties.

Not `check`: that is the function that the package exports.
"""
