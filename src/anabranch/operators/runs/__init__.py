"""Operators whose results are maximal runs: distinct, difference, normalise.

levels                      how often a payload is alive, as runs: what the first two share
distinct, difference        each payload once; more on the left than on the right
normalise, normalise_runs   the normal form of a history, and its kernels
"""
