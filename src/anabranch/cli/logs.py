"""Logging of the command line: standard `logging` under `anabranch.*`, to stderr.

Warnings by default; -v adds INFO, -vv DEBUG.  The library configures no logging: only the
command line calls `configure`.
"""

import logging
import sys

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure(verbosity: int) -> None:
    """Log `anabranch.*` to stderr at the level of `verbose` -v; a second call replaces it."""
    logger = logging.getLogger("anabranch")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS[min(max(verbosity, 0), len(LEVELS) - 1)])
    # Do not propagate: a root logger of an embedding program would print each line again.
    logger.propagate = False
