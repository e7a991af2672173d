"""The codes of `contract.Reason` as plain numbers, the form in which kernels read them."""

from anabranch.operators.contract import Reason

(
    FIRST, LEADS, KNOWN, NOTED, NO_CHANGE, REDELIVERY, SETTLED, SUPERSEDED, FOLLOWS, JOINING,
    CORRECTED, LATE, MISSED, BACKWARDS, BEHIND_STABLE, NO_SUCH_EVENT, SECOND_INSERT, PASSED,
    OTHER_EVENT, ABANDONED, NOT_INSERT_ONLY, OUT_OF_ORDER, SAME_START, HELD, EXPELLED, APPLIED,
    SECOND_OF_KEY, DUPLICATE, FORGOTTEN, SURPASSED, BEHIND_FORCED, OF_FORGOTTEN, BROKEN_CHAIN,
    NOT_PROMISED,
) = (reason.code for reason in Reason)  # fmt: skip
