"""What every screen is drawn from: the newest picture, and how the app is tied to its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView, Telemetry
    from diffuse_tui.presenter.banner import Link


class Facts(NamedTuple):
    """All that is known at one moment. `view` is None until the first picture came.

    `wanted` is the model asked for on the command line, `model` the one that is shown.
    """

    title: str
    wanted: str | None
    model: ModelView | None
    view: NetworkView | None
    link: Link
    telemetry: Telemetry | None = None
