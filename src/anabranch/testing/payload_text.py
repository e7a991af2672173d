"""Payloads of several columns as one text, so that pictures can have them.

>>> from anabranch.model.element import Insert
>>> in_text(Insert(("a", (0, 6)), 0, 6))
Insert(payload='a (0, 6)', start=0, end=6)
"""

from dataclasses import replace

from anabranch.model.element import Element, Stable


def in_text(element: Element) -> Element:
    """The element; columns of its payload are separated by spaces."""
    if isinstance(element, Stable) or not isinstance(element.payload, tuple):
        return element
    return replace(element, payload=" ".join(map(str, element.payload)))
