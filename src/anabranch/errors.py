"""Every error that Anabranch raises on purpose, drawn as a tree.

    AnabranchError                 catch this for all of them
    ├── UsageError         exit 2  a wrong argument, option or combination of them
    ├── InputError         exit 2  the input cannot be read
    │   ├── SchemaError            a column is missing, or has an unsupported type
    │   ├── FileError              a file or folder is missing, half-written or changed
    │   └── NotationError          a text that should be elements is not
    ├── SetupError         exit 2  the machine lacks something (Java, memory, a library)
    ├── StateError         exit 2  a checkpoint, state or output belongs to something else
    ├── ViolationError     exit 1  a stream broke a promise and the policy is to stop
    └── RunError           exit 3  a run failed after it started

Each message names the call, option or file, what was required, what it got, and what to do.
`code` is stable, for machines; `exit_code` is what the command line returns.
"""

from typing import ClassVar


class AnabranchError(Exception):
    """The base class: catch this for every error that Anabranch raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3


class UsageError(AnabranchError):
    """An argument, an option or a combination of them is invalid; change the call."""

    code = "usage"
    exit_code = 2


class InputError(AnabranchError):
    """The input cannot be read; nothing was written."""

    code = "input"
    exit_code = 2


class SchemaError(InputError):
    """A column is missing or has an unsupported type; fix the named column."""

    code = "input.schema"


class FileError(InputError):
    """A file or folder is missing, half-written or changed; look at the named path."""

    code = "input.file"


class NotationError(InputError):
    """A text that should be elements is not; the message shows the place."""

    code = "input.notation"


class SetupError(AnabranchError):
    """The machine lacks something; the message names every remedy."""

    code = "setup"
    exit_code = 2


class StateError(AnabranchError):
    """A checkpoint, state or output folder belongs to another run or version."""

    code = "state"
    exit_code = 2


class ViolationError(AnabranchError):
    """A stream broke a promise and the policy is to stop; the element is named."""

    code = "violation"
    exit_code = 1


class RunError(AnabranchError):
    """A run failed after it started; what was committed stays, and a restart continues."""

    code = "run"
    exit_code = 3
