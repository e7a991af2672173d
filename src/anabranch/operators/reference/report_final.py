"""Report what is final, one element at a time: each event once, when nothing can change it.

At every prefix what was reported is exactly the frozen events of the input's history
(`model.frozen`); those that one stable freezes come by start, payload and end.  With
`final_at_start` ends are known, and an event with an end is final when its start is before the
frontier.

`operators.report_final` does the same over batches and is compared with this.

>>> from anabranch.model.element import Insert, Stable
>>> final = ReportFinal()
>>> [final.push(e) for e in (Insert("a", 1, 9), Insert("b", 2, 3), Stable(4))]
[(), (), (Insert(payload='b', start=2, end=3),)]
"""

from collections import Counter

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import Violation
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.reference.cleanse import release_order
from anabranch.operators.reference.unary import refuse


class ReportFinal:
    """The state of the reference; `push` is the only step."""

    def __init__(self, *, final_at_start: bool = False) -> None:
        self.final_at_start = final_at_start
        self.frontier: Time = NEVER
        self.waiting: Counter[Event] = Counter()
        self.violations: list[Violation] = []
        self.position = 0

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; the events that it makes final, as inserts."""
        position, self.position = self.position, self.position + 1
        if isinstance(element, Stable):
            self.frontier = max(self.frontier, element.time)
            return self._release()
        reason = refuse(element, self.waiting, frontier=self.frontier)
        if reason is not None:
            self.violations.append(Violation(position, element, reason))
        elif not element.changes_nothing:
            if isinstance(element, Adjust):
                self.waiting -= Counter([element.old_event])
            if not element.event.is_empty:
                self.waiting[element.event] += 1
        return ()

    def _release(self) -> tuple[Element, ...]:
        ready = sorted(filter(self._is_final, self.waiting), key=release_order)
        return tuple(Insert(*event) for event in ready for _ in range(self.waiting.pop(event)))

    def _is_final(self, event: Event) -> bool:
        is_known = self.final_at_start and event.end != FOREVER
        end = event.start if is_known else event.end
        return status(event.start, end, frontier=self.frontier) is Status.FROZEN
