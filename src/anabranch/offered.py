"""The members of a class that users are offered: by completion, and in the API reference.

A class of the public face has members that only other modules of ours use.  It lists them in
`_hidden`; `dir()` and the reference leave these out.

>>> class Stream(Offered):
...     _hidden = "parcels"
...
...     def where(self) -> None: ...
...     def parcels(self) -> None: ...
>>> offered(Stream)
['where']
>>> "parcels" in dir(Stream())
False
"""

from collections.abc import Iterable
from typing import ClassVar


class Offered:
    """A class with members that are not for users: `_hidden` names them, with blanks between.

    Those of its bases are hidden too.
    """

    _hidden: ClassVar[str] = ""

    def __dir__(self) -> Iterable[str]:
        """All members but the inner ones."""
        hidden = inner(type(self))
        return [name for name in super().__dir__() if name not in hidden]


def inner(of: type) -> frozenset[str]:
    """The members of a class that are not for users."""
    return frozenset().union(*(vars(one).get("_hidden", "").split() for one in of.__mro__))


def offered(of: type) -> list[str]:
    """The members of a class and its bases that are for users, sorted."""
    names: set[str] = set()
    for one in of.__mro__:
        if one.__module__.split(".")[0] == of.__module__.split(".")[0]:
            names |= {*vars(one), *vars(one).get("__annotations__", ())}
    return sorted(name for name in names - inner(of) if not name.startswith("_"))
