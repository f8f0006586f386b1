"""What the app is asked to do about hosting, and what it tells of it: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import Telemetry
    from diffuse_tui.presenter.fit import Fit

AUTO = "auto"
DTYPES = (AUTO, "fp32", "bf16", "int8", "int4")
DEVICES = (AUTO, "cpu", "cuda", "mps")

NO_SLICE = "holds no slice"
"""What a node without a Host says of its stage."""


class Choice(NamedTuple):
    """What to host and how. Empty text and `auto` leave it to the host."""

    model: str
    memory: str = ""
    dtype: str = AUTO
    device: str = AUTO
    max_layers: str = ""
    threads: str = ""

    def plan_arguments(self) -> tuple[str, ...]:
        """The options that `diffuse plan` and `diffuse host` both take.

        One word each, so that text which begins with a dash stays the value it is meant as.
        """
        given = [f"--model={self.model}"]
        if self.memory:
            given.append(f"--memory={self.memory}")
        if self.max_layers:
            given.append(f"--max-layers={self.max_layers}")
        return (*given, f"--dtype={self.dtype}", f"--device={self.device}")

    def host_arguments(self) -> tuple[str, ...]:
        """The options of `diffuse host`."""
        threads = (f"--threads={self.threads}",) if self.threads else ()
        return (*self.plan_arguments(), *threads)


class Look(NamedTuple):
    """Tell how hosting stands."""


class PlanFor(NamedTuple):
    """Find out what would fit; a later one takes the place of one under way."""

    choice: Choice


class Complete(NamedTuple):
    """List the files that the beginning of a path may mean."""

    text: str


class Start(NamedTuple):
    """Host this, in the place of a node without a slice."""

    choice: Choice


class End(NamedTuple):
    """End the node that holds a slice. `patience` in seconds; None leaves it to the node."""

    patience: float | None


class Keep(NamedTuple):
    """Whether a host that the app started goes on after quitting."""

    keep: bool


Order = Look | PlanFor | Complete | Start | End | Keep


class Status(NamedTuple):
    """How hosting stands with the app.

    `refusal` says why no host can be started from here, `doing` what is under way, `failure` why
    the last attempt failed, or why a host ended by itself. `mine` tells whether the app started
    the host that runs, `other` is the process id of a node that it did not start, or (`earlier`)
    that it started before it was left the last time. `ends` tells whether the node may be ended
    from here. `keep`: the host goes on when the app is left. `ending`: it was asked to end.
    """

    refusal: str = ""
    doing: str = ""
    failure: str = ""
    mine: bool = False
    other: int | None = None
    keep: bool = True
    ends: bool = True
    earlier: bool = False
    ending: bool = False

    @property
    def ours(self) -> bool:
        """Whether a host of the app's runs, of which it may be said what becomes of it."""
        return not self.refusal and (self.mine or self.earlier)


class Planned(NamedTuple):
    """What would fit; or why that is not known."""

    choice: Choice
    fit: Fit | None
    failure: str = ""


class Completed(NamedTuple):
    """Paths that begin with `text`, at most some dozens; directories end with a slash."""

    text: str
    paths: tuple[str, ...]


News = Status | Planned | Completed


class Desk(Protocol):
    """Does what the Host screen asks for."""

    @property
    def status(self) -> Status:
        """How hosting stands."""

    async def do(self, order: Order, tell: Callable[[News], None]) -> None:
        """Carry an order out, and tell what comes of it; never raises but when cancelled."""

    def abandon(self) -> None:
        """The app ends this instant: a host that is not to go on is asked to end, unattended."""


def hosts(telemetry: Telemetry | None) -> bool:
    """Whether the node that the app is attached to is a Host, ready or not."""
    if telemetry is None:
        return False
    return telemetry.slice is not None or telemetry.stage not in ("", NO_SLICE)


def leaves(telemetry: Telemetry | None) -> bool:
    """Whether it is on its way out: it takes no new Sessions, and then it ends."""
    return telemetry is not None and telemetry.stage.startswith("leaving")
