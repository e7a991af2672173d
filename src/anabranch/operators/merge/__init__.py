"""Merge: physically different, fallible copies of one stream into one."""
