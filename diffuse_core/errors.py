"""The error tree: whose fault it is, and what the caller does next.

    DiffuseError                exit  meaning and next step
    ├── UsageError               2    the request itself is wrong: change it
    │   ├── PromptTooLong        2    the prompt does not fit the model: shorten it
    │   └── ToolsUnknown         2    the model's template knows no tools: leave them out
    ├── ModelUnknown             3    no such model here or on the network: check the name or path
    │   └── ModelUnusable        3    the files are damaged, hostile or of no supported kind
    ├── ModelIncomplete          4    some layers are held by nobody: add a host, or wait
    ├── Unreachable              5    no node answered: check --bootstrap and that it runs
    │   └── ChannelClosed        5    a channel that was open ended
    ├── Refused                  6    a node declined (busy, no memory, not allowed): retry
    └── StagesLost               7    a stage died during a generation: ask again

Every message says the cause and the next step in words a user can act on. Exit 1 is a defect of
Diffuse itself, 130 an interruption.
"""

from __future__ import annotations

from typing import Literal

EXIT_INTERRUPTED = 130

RefusalReason = Literal[
    "busy", "memory", "model", "slice", "context", "invalid", "leaving", "lost", "owner"
]


class DiffuseError(Exception):
    """Root of everything Diffuse raises on purpose; `exit_code` is the process exit status.

    `events` tell in words what happened before, where a generation failed.
    """

    exit_code = 1
    events: tuple[str, ...] = ()


class UsageError(DiffuseError):
    """The request cannot work as written: a wrong flag, value or combination."""

    exit_code = 2


class PromptTooLong(UsageError):
    """The prompt takes more positions than the model has."""


class ToolsUnknown(UsageError):
    """Tools were given, and the model's chat template has no words for them."""


class ModelUnknown(DiffuseError):
    """No model of that name is here or on the network."""

    exit_code = 3


class ModelUnusable(ModelUnknown):
    """The model's files are damaged, hostile, or of an architecture that is not proven."""


class ModelIncomplete(DiffuseError):
    """Some layer ranges of the model are held by no live node."""

    exit_code = 4


class Unreachable(DiffuseError):
    """No node could be reached."""

    exit_code = 5


class ChannelClosed(Unreachable):
    """The channel ended; nothing more can be sent or received on it."""


class Refused(DiffuseError):
    """A node declined the request and said why; `reason` is the word for programs."""

    exit_code = 6

    def __init__(self, message: str, reason: RefusalReason = "invalid") -> None:
        super().__init__(message)
        self.reason: RefusalReason = reason


class StagesLost(DiffuseError):
    """A stage was lost while a generation ran."""

    exit_code = 7
