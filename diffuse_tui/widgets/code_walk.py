"""Going from code block to code block by keys, in whatever scrolls them."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll


class CodeWalk(VerticalScroll):
    """`]` and `[` focus the code block after and before; there, other keys are its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "code(1)", "Next code block", show=False),
        Binding("left_square_bracket", "code(-1)", "Code block before", show=False),
    ]

    def action_code(self, step: int) -> None:
        """Focus the next code block; from elsewhere the last one, or the first one seen."""
        from diffuse_tui.widgets.code_block import CodeBlock

        blocks = [*self.query(CodeBlock)]
        focused = self.screen.focused
        if not blocks:
            return
        if isinstance(focused, CodeBlock) and focused in blocks:
            place = blocks.index(focused) + step
            if not 0 <= place < len(blocks):
                return
        else:
            seen = [n for n, each in enumerate(blocks) if each.region.y >= self.region.y]
            place = seen[0] if step > 0 and seen else len(blocks) - 1
        self.screen.set_focus(blocks[place])
