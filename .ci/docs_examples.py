"""Examples in docstrings, as `>>>` lines anywhere in the text, shown as code in the reference.

Without it Markdown takes them for quotations.
"""

import re
from typing import Any, Final

from griffe import Extension, Object

EXAMPLE: Final = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Examples(Extension):
    """Puts a fence around each run of lines that starts with `>>>`."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Changes the text that is shown, not the source."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
