"""What is known of one node, over the replica table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.node_detail import node_lines
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import NodeView


class NodeScreen(ModalScreen[None]):
    """Scrolls; Esc, Enter or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss(None)", "Close")]

    def __init__(self, node: NodeView) -> None:
        super().__init__()
        self._node = node

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll(id="node") as box:
            box.border_title = clean_line(f"Node {self._node.short}", 20)
            box.border_subtitle = "Esc closes"
            yield Static(content(node_lines(self._node)))
