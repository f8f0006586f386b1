"""The conversations that are kept: search, open, rename, delete, export."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import DiffuseError
from diffuse_tui.presenter.conversation_list import (
    COLUMNS,
    FOUND_COLUMNS,
    cells,
    deleted_line,
    empty_line,
    in_order,
    status_line,
)
from diffuse_tui.presenter.export import MARKDOWN, slug
from diffuse_tui.presenter.spans import Span
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.filter_line import FilterLine
from diffuse_tui.widgets.line_table import LineTable
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.typed_line import TypedLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.timer import Timer

    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import DialogueHead
    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.spans import Line, Tone

NEW = 0
"""What the screen gives back when a new conversation is to be begun."""
MOST_LISTED = 10_000
MOST_FOUND = 200
SEARCH_S = 0.12
"""A search waits so long for the next key: what one finds may take longer than a key."""

Doing = Literal["rename", "export", "import"]
_ASKS: dict[Doing, str] = {
    "rename": "Name (empty: the first words again)",
    "export": "Write to (.md or .json)",
    "import": "Read from (.json)",
}


class Deleted(NamedTuple):
    """What `u` brings back."""

    token: int
    title: str


class ConversationsScreen(LiveScreen[int | None]):
    """Gives back the id of the conversation to open, `NEW`, or None.

    Args:
        facts: What is known.
        archive: Where conversations are kept.
        open_id: The one in the chat.
        answering: Whether an answer is being written in it: then it cannot be deleted.
    """

    CRUMB = "Conversations"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "new", "New"),
        Binding("e", "rename", "Rename"),
        Binding("d", "delete", "Delete"),
        Binding("u", "undo", "Bring back", show=False),
        Binding("x", "export('.md')", "Export"),
        Binding("X", "export('.json')", "Export as JSON", show=False),
        Binding("i", "import", "Import", show=False),
    ]

    def __init__(
        self,
        facts: Facts,
        archive: Archive,
        *,
        open_id: int | None = None,
        answering: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(facts)
        self._archive = archive
        self._open_id = open_id
        self._answering = answering
        self._heads: dict[str, DialogueHead] = {}
        self._query = ""
        self._deleted: list[Deleted] = []
        self._doing: Doing | None = None
        self._waiting: Timer | None = None

    def compose_body(self) -> ComposeResult:
        """The search, the list, a line for notes, a line to type in."""
        search = FilterLine("words of a question, an answer or a title")
        search.id = "search"
        yield search
        yield LineTable(COLUMNS, id="kept")
        yield LineTable(FOUND_COLUMNS, id="found")
        yield Static("", id="status", markup=False)
        yield TypedLine(id="asked")

    def on_mount(self) -> None:
        """Show everything, the newest first."""
        super().on_mount()
        self.query_one("#search").display = False
        self.query_one("#found").display = False
        self.query_one("#asked").display = False
        self._list()
        self.set_focus(self._table)

    def show_facts(self, facts: Facts) -> None:
        """Nothing of the network is on this screen but its banner; ages go on."""
        self._table.refresh()

    # --- the list ---------------------------------------------------------------------------

    @property
    def _table(self) -> LineTable:
        return self.query_one("#found" if self._query.strip() else "#kept", LineTable)

    @property
    def _head(self) -> DialogueHead | None:
        """The conversation under the cursor."""
        key = self._table.cursor_key
        return self._heads.get(key) if key is not None else None

    def _list(self, note: Line | None = None) -> None:
        """Read the list anew and show it."""
        searching = bool(self._query.strip())
        limit = MOST_FOUND if searching else MOST_LISTED
        heads = self._archive.heads(self._query, limit)
        self._heads = {str(head.id): head for head in heads}
        focused = isinstance(self.focused, LineTable)
        self.query_one("#kept").display = not searching
        self.query_one("#found").display = searching
        self._draw()
        if focused:
            self.set_focus(self._table)
        self._say(note or status_line(len(heads), limit, self._query, self._archive.size()))

    def _draw(self) -> None:
        table, searching = self._table, bool(self._query.strip())
        heads = self._heads  # The other table, out of sight, goes on with its own.
        ordered = in_order(tuple(heads.values()), table.sort)
        table.empty = empty_line(self._query)
        table.show(
            [str(head.id) for head in ordered],
            lambda key: cells(
                heads[key],
                datetime.datetime.now(datetime.UTC).timestamp(),
                opened=heads[key].id == self._open_id,
                searching=searching,
            ),
        )

    def _say(self, line: Line) -> None:
        self.query_one("#status", Static).update(content([line]))

    def _tell(self, text: str, tone: Tone = "plain") -> None:
        self._say((Span(clean_line(text), tone),))

    def on_line_table_sorted(self) -> None:
        """In another order."""
        self._draw()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Open it in the chat."""
        message.stop()
        self.dismiss(int(message.key))

    # --- searching --------------------------------------------------------------------------

    def action_search(self) -> None:
        """Type words; the list follows."""
        search = self.query_one("#search", FilterLine)
        search.display = True
        self.set_focus(search)

    def on_input_changed(self, message: Input.Changed) -> None:
        """Search when the typing rests for a moment."""
        if message.input.id == "search" and message.value != self._query:
            if self._waiting is not None:
                self._waiting.stop()
            self._waiting = self.set_timer(SEARCH_S, self._search)

    def _search(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
        typed = self.query_one("#search", FilterLine).value
        if typed != self._query:
            self._query = typed
            self._list()

    def on_filter_line_left(self, message: FilterLine.Left) -> None:
        """To the rows; a cleared search goes away."""
        message.stop()
        self._search()
        if message.cleared:
            message.line.display = False
        self.set_focus(self._table)

    def action_back(self) -> None:
        """Leave what is being typed, then the search, then the screen."""
        search = self.query_one("#search", FilterLine)
        if self._doing is not None:
            self._ask_no_more()
        elif search.display:
            search.action_clear()
        else:
            self.dismiss(None)

    # --- what a line is typed for -----------------------------------------------------------

    def _ask(self, doing: Doing, value: str) -> None:
        self._doing = doing
        asked = self.query_one("#asked", TypedLine)
        asked.display = True
        asked.value = value
        asked.cursor_position = len(value)
        self._tell(f"{_ASKS[doing]} · Enter does it · Esc leaves it", "accent")
        self.set_focus(asked)

    def _ask_no_more(self, note: Line | None = None) -> None:
        self._doing = None
        self.query_one("#asked").display = False
        self.set_focus(self._table)
        self._list(note)

    async def on_input_submitted(self, message: Input.Submitted) -> None:
        """Do it, or say why not and leave the line open."""
        message.stop()
        if self._doing is None:
            return
        try:
            note = await self._do(self._doing, message.value)
        except DiffuseError as error:
            self._tell(str(error), "bad")
            return
        self._ask_no_more((Span(clean_line(note), "good"),))

    async def _do(self, doing: Doing, typed: str) -> str:
        if doing == "import":
            return await self._import(typed)
        head = self._head
        dialogue = self._archive.load(head.id) if head is not None else None
        if dialogue is None:
            return "it is not there any more"
        if doing == "export":
            from diffuse_tui.archive.export import export_dialogue

            return f"written to {await export_dialogue(dialogue, typed)}"
        self._archive.set_title(dialogue.id, typed, dialogue.changed_at)
        return "renamed"

    async def _import(self, typed: str) -> str:
        from diffuse_tui.archive.export import read_export

        number = self._archive.add(await read_export(typed))
        if not number:
            raise DiffuseError("it could not be kept; free some space on the disk")
        self._query = ""
        self._list()
        self._table.move_to(str(number))
        return "read; it is in the list"

    def action_rename(self) -> None:
        """Give the conversation under the cursor a name."""
        if self._head is not None:
            self._ask("rename", clean_line(self._head.title))

    def action_export(self, ending: str) -> None:
        """Write the conversation under the cursor to a file."""
        if self._head is not None:
            self._ask("export", f"{slug(self._head.title)}{ending or MARKDOWN}")

    def action_import(self) -> None:
        """Read a conversation that was exported as JSON."""
        self._ask("import", "")

    # --- new, delete, undo ------------------------------------------------------------------

    def action_new(self) -> None:
        """Begin a new conversation in the chat."""
        self.dismiss(NEW)

    def action_delete(self) -> None:
        """Delete the conversation under the cursor; `u` brings it back."""
        head = self._head
        if head is None:
            return
        if head.id == self._open_id and self._answering():
            self._tell("an answer is being written in it; stop that first", "warning")
            return
        self._deleted.append(Deleted(self._archive.delete(head.id), head.title))
        self._list(deleted_line(head.title, len(self._deleted)))

    def action_undo(self) -> None:
        """Bring back what was deleted last."""
        if not self._deleted:
            self._tell("nothing was deleted here", "dim")
            return
        token, title = self._deleted.pop()
        there = self._archive.restore(token)
        self._list((Span(f"“{clean_line(title, 40)}” is back", "good"),) if there else None)
        self._table.move_to(str(token))
