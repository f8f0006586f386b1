"""What is said before a host begins or ends, and which models are worth proposing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import DEMO_ALIAS, DEMO_MODEL_ID, fetch_name
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.hosting import AUTO, leaves
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.view import ModelView, NetworkView, Telemetry
    from diffuse_tui.presenter.hosting import Status

MOST_IDEAS = 60
DRAIN_S = 600.0
"""How long Sessions may take in a drain."""
_AFTER = "Then a node without a slice takes its place, and the app is attached to that."


class Idea(NamedTuple):
    """A model that may be hosted: what is typed for it, and a word about it."""

    value: str
    about: str


def ideas(view: NetworkView | None, paths: Iterable[str], typed: str) -> tuple[Idea, ...]:
    """What the text typed so far may become, the network's models first."""
    models = view.models if view is not None else ()
    found = [Idea(_named(model), _about(model)) for model in models]
    found.append(Idea(AUTO, "the model of the network that needs this machine most"))
    if not any(model.id == DEMO_MODEL_ID for model in models):
        found.append(Idea(DEMO_ALIAS, "SmolLM2-135M-Instruct, small enough for any machine"))
    low = typed.strip().casefold()
    fitting = [idea for idea in found if low in idea.value.casefold()]
    named = any(low == idea.value.casefold() for idea in found)
    files = [Idea(path, "directory" if path.endswith("/") else "file") for path in paths]
    # What is typed in full already asks for the others.
    return tuple([*(found if named else fitting), *files][:MOST_IDEAS])


def idea_line(idea: Idea) -> Line:
    """One idea in a list."""
    return (Span(clean_line(idea.value, 120), "accent"), Span(f"  {idea.about}", "dim"))


def common_start(text: str, paths: tuple[str, ...]) -> str:
    """How far a path can be completed: the longest beginning that all have in common."""
    if not paths:
        return text
    first, last = min(paths), max(paths)
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return first[:shared] if shared > len(text) else text


def is_path(text: str) -> bool:
    """Whether text may be the beginning of a path."""
    return "/" in text or text.startswith(("~", "."))


def replacing(status: Status) -> str:
    """What hosting does to a node that the app did not start."""
    return (
        f"A node that this app did not start runs here (process {status.other}). It holds no "
        "slice. It is ended, and a host takes its place, with the options that this app was "
        "started with."
    )


def draining(telemetry: Telemetry) -> str:
    """What a drain does now."""
    if not telemetry.sessions:
        return f"No session runs here, so the host ends at once. {_AFTER}"
    return (
        f"{counted(telemetry.sessions, 'session')} may finish, for {DRAIN_S / 60:.0f} minutes at "
        f"most, and no new ones begin. {_AFTER}"
    )


def stopping(telemetry: Telemetry) -> str:
    """What stopping does now; at once, where the host is leaving already."""
    if not telemetry.sessions:
        return f"No session runs here. {_AFTER}"
    running = counted(telemetry.sessions, "session")
    if leaves(telemetry):
        return f"{running} cut short: who asked sees the answer go on elsewhere, or fail. {_AFTER}"
    return f"{running} may finish within 6 seconds; what then still runs is ended. {_AFTER}"


def _named(model: ModelView) -> str:
    return fetch_name(model.id) or model.id


def _about(model: ModelView) -> str:
    kept = "" if fetch_name(model.id) else " · its files must be here"
    return f"{model.state} · {counted(model.layers, 'layer')} · {model.contract}{kept}"
