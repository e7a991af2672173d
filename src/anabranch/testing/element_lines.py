"""Elements as lines of JSON, whatever their payload's columns: they come back as they were.

For runs that share one streaming query (`anabranch.testing.several`), whose one column is text.
A payload is what the model has: a value, or a tuple of values; no bytes, decimals or times.

>>> from anabranch.model.element import Insert
>>> from anabranch.model.time import FOREVER
>>> line_of(Insert(("a", 1, None, (0, 6)), 3, FOREVER))
'["insert", ["a", 1, null, [0, 6]], 3, Infinity]'
>>> element_of(line_of(Insert(("a", 1, None, (0, 6)), 3, FOREVER)))
Insert(payload=('a', 1, None, (0, 6)), start=3, end=inf)
>>> crossed(crossing(Insert(7, 3, 5)))
Insert(payload=7, start=3, end=5)
"""

import json
from dataclasses import fields, replace
from typing import Any, Final

from anabranch.model.element import Adjust, Element, Insert, Stable

_KINDS: Final = {"insert": Insert, "adjust": Adjust, "stable": Stable}


def line_of(element: Element) -> str:
    """The element as one line."""
    (kind,) = (name for name, one in _KINDS.items() if isinstance(element, one))
    return json.dumps([kind, *(getattr(element, one.name) for one in fields(element))])


def element_of(line: str) -> Element:
    """The element of a line."""
    kind, *values = json.loads(line)
    made: Element = _KINDS[kind](*map(_hashable, values))
    return made


def crossing(element: Element) -> Element:
    """The same element with its payload as text, for a query of one text column."""
    if isinstance(element, Stable):
        return element
    return replace(element, payload=json.dumps(element.payload))


def crossed(element: Element) -> Element:
    """The element that crossed so."""
    if isinstance(element, Stable):
        return element
    return replace(element, payload=_hashable(json.loads(str(element.payload))))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
