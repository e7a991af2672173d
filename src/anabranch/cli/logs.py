"""What Anabranch says about its own work: standard `logging` under `anabranch.*`, to stderr.

Warnings always; -v adds what is done, -vv why and how. As a library Anabranch configures no
logging at all: only the command line calls `configure`.
"""

import logging
import sys

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure(verbosity: int) -> None:
    """Send `anabranch.*` to stderr at the level of so many -v; calling it again replaces it."""
    logger = logging.getLogger("anabranch")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS[min(max(verbosity, 0), len(LEVELS) - 1)])
    # Ours ends here, or a root logger that an embedding program configured says it twice.
    logger.propagate = False
