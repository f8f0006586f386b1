"""A hosting desk that a test drives by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.presenter.fit import Changes, Fit, Told
from diffuse_tui.presenter.hosting import Keep, Look, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_tui.presenter.hosting import News, Order

FIT = Fit(
    model="smol",
    slice=(0, 12),
    reason="fills the gap 0:12 of 30",
    bytes={"weights": 203 << 20, "kv_reserve": 90 << 20, "total": 293 << 20, "capacity": 1 << 30},
    changes=Changes("Incomplete -> Fragile, closes the gap 0:12", "Incomplete", "Fragile"),
    contract="bf16",
    more_memory=(Told("with 100 MiB more it takes 0:18"),),
    more_hosts=Told("1 more host like this one gives every layer 2 holders (Robust)"),
)


class FakeDesk:
    """Notes orders; `say` tells news as the desk would."""

    def __init__(self, **status: object) -> None:
        self.status = Status(**status)
        self.orders: list[Order] = []
        self.abandoned = False
        self._tell: Callable[[News], None] | None = None

    async def do(self, order: Order, tell: Callable[[News], None]) -> None:
        self._tell = tell
        if isinstance(order, Keep):
            self.status = self.status._replace(keep=order.keep)
        if isinstance(order, Look | Keep):
            tell(self.status)
        if not isinstance(order, Look):
            self.orders.append(order)

    def abandon(self) -> None:
        self.abandoned = True

    def say(self, news: News) -> None:
        if isinstance(news, Status):
            self.status = news
        self._tell(news)
