"""The warning of streams that have nothing to make events final."""

import warnings


def warn_endless(where: str) -> None:
    """Warn that nothing becomes final; `where` is the call that got the streams."""
    warnings.warn(
        f"{where}: these streams have no stables, so nothing becomes final, and every event "
        "that a state needs is remembered for ever; infer progress from the rows' times, such "
        "as ab.events(...).heartbeats(disorder='10 minutes', idle_after='1 minute'), give it "
        "as stables (ab.elements), or read batches",
        UserWarning,
        stacklevel=3,
    )
