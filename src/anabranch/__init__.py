"""Anabranch: many fallible copies of a stream in, one clean, complete stream out."""
