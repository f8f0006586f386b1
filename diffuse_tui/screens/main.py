"""The main screen: dashboard and chat, side by side or one page at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import models_named
from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.banner import Link
from diffuse_tui.presenter.facts import Facts
from diffuse_tui.presenter.history import NodeHistory
from diffuse_tui.presenter.standing import choose, refusal
from diffuse_tui.screens.follower import Follower
from diffuse_tui.screens.frame import FramedScreen
from diffuse_tui.screens.kept import KeptConversations
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.coverage_map import CoverageMap
from diffuse_tui.widgets.event_log import EventLog
from diffuse_tui.widgets.event_panel import EventPanel
from diffuse_tui.widgets.key_line import KeyLine
from diffuse_tui.widgets.machine_panel import MachinePanel
from diffuse_tui.widgets.prompt import Prompt
from diffuse_tui.widgets.replica_table import ReplicaPanel, ReplicaTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.geometry import Size
    from textual.timer import Timer
    from textual.widget import Widget

    from diffuse_core.domain.view import ModelView
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.parameters import Params
    from diffuse_tui.screens.messages import EventsArrived, LinkChanged, ViewArrived
    from diffuse_tui.screens.palette import Command

Page = Literal["network", "chat", "machine"]
_PAGES: dict[Page, str] = {"network": "#network", "chat": "#chat", "machine": "#host"}

_WANTED = {
    "history": "conversations",
    "parameters": "parameters",
    "waterfall": "waterfall",
    "help": "help",
    "models": "pick_model",
    "quit": "app.ask_to_quit",
}
"""The actions for what the chat asks to be opened."""

WIDE, TALL = 110, 28

STALL_S = 6.0


class MainScreen(FramedScreen[None]):
    """Everything the app shows; below `WIDE` x `TALL` one of three pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's type
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012
    AUTO_FOCUS = ""
    LEAST = (40, 12)
    WAY_OUT = "F1 lists the keys"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "page('network')", "Network", key_display="F2"),
        Binding("f3", "page('chat')", "Chat", key_display="F3"),
        Binding("f4", "page('machine')", "Machine", key_display="F4"),
        Binding("n", "page('network')", "Network", show=False),
        Binding("c", "page('chat')", "Chat", show=False),
        Binding("e", "page('machine')", "Machine and events", show=False),
        Binding("f5", "pick_model", "Model", key_display="F5"),
        Binding("m", "pick_model", "Model", show=False),
        Binding("f6", "what_if", "What if", key_display="F6"),
        Binding("w", "what_if", "What if", show=False),
        Binding("f7", "host", "Host", key_display="F7"),
        Binding("h", "host", "Host a model on this machine", show=False),
        Binding("f8", "conversations", "Conversations", key_display="F8", show=False),
        Binding("o", "conversations", "Conversations", show=False),
        Binding("y", "chat('copy')", "Copy the answer", show=False),
        Binding("Y", "chat('copy', 'code')", "Copy the last code block", show=False),
        Binding("R", "chat('regenerate')", "Answer the last question anew", show=False),
        Binding("E", "chat('edit')", "Edit the last question", show=False),
        Binding("f9", "parameters", "Parameters", key_display="F9", show=False),
        Binding("p", "parameters", "How answers are made, and the system prompt", show=False),
        Binding("v", "waterfall", "Where the last answer's tokens spent their time", show=False),
        Binding("u", "chat('other')", "The version before regenerating or editing", show=False),
        Binding("escape", "escape", "Stop / leave", show=False),
        Binding("q", "app.ask_to_quit", "Quit", show=False),
    ]

    def __init__(self, title: str, wanted: str | None, *, open_chat: bool = False) -> None:
        super().__init__(classes="-page-chat")
        self._facts = Facts(title, wanted, None, None, Link("connecting"))
        self._history = NodeHistory()
        self._chosen: str | None = None
        self._stall: Timer | None = None
        self._page: Page = "chat"
        self._opening = not open_chat
        self._why: str | None = None
        self._kept = KeptConversations(self, lambda: self.action_page("chat"))

    def compose(self) -> ComposeResult:
        """Banner, dashboard, chat, keys."""
        yield Banner(self._facts)
        with Horizontal(id="body"):
            with Vertical(id="dashboard"):
                with Vertical(id="network"):
                    yield CoverageMap()
                    yield ReplicaPanel()
                with Vertical(id="host"):
                    yield MachinePanel()
                    yield EventPanel()
            yield ChatPane()
        yield self.too_small()
        yield KeyLine()

    def on_mount(self) -> None:
        """Start in the chat, so that what is typed at once is text and no command."""
        self.action_page("chat")

    # --- what the app tells -----------------------------------------------------------------

    def on_view_arrived(self, message: ViewArrived) -> None:
        """Draw a new picture."""
        if not self.can_draw:
            return
        if self._stall is not None:
            self._stall.stop()
        self._stall = self.set_timer(STALL_S, self._stalled)
        self._facts = self._facts._replace(
            view=message.view, telemetry=message.telemetry, link=Link("attached")
        )
        self._history.note(message.view)
        self._draw()
        self._opened()

    def _opened(self) -> None:
        """With the first picture: where no model answers, the network tells more than the chat."""
        opening, self._opening = self._opening, False
        untouched = self._page == "chat" and not self.query_one(Prompt).text
        if opening and untouched and self._one_page() and self._why is not None:
            self.action_page("network")

    def on_events_arrived(self, message: EventsArrived) -> None:
        """Log events."""
        if not self.can_draw:
            return
        view = self._facts.view
        now = view.taken_at if view is not None else message.events[-1].at
        self.query_one(EventPanel).add(message.events, now)

    def on_link_changed(self, message: LinkChanged) -> None:
        """Tell how the app is tied to its node."""
        if self._stall is not None:
            self._stall.stop()
        self._facts = self._facts._replace(link=message.link)
        self._draw()

    def _stalled(self) -> None:
        reason = f"no word from the node for {STALL_S:.0f} s; what is shown may be old"
        self._facts = self._facts._replace(link=Link("stalled", reason))
        self._draw()

    def _draw(self, *, picked: bool = False) -> None:
        if not self.can_draw:
            return
        facts = self._facts
        model: ModelView | None = None
        # All of the reason: the top line has room for its beginning only.
        gone = facts.link.reason if facts.link.state == "disconnected" else ""
        why: str | None = clean_line(gone, 300) or "the app is not attached to its node"
        if facts.view is not None:
            model = choose(facts.view, facts.wanted, self._chosen)
            self.query_one(CoverageMap).show_model(model, facts.view.nodes)
            self.query_one(ReplicaPanel).show_view(facts.view, model, self._history)
            self.query_one(MachinePanel).show_view(facts.view, facts.telemetry)
            if facts.link.state in ("attached", "stalled"):
                why = refusal(model, facts.view, facts.wanted)
        self._facts = facts._replace(model=model)
        self.app.title = f"{facts.title} · {model.id}" if model is not None else facts.title
        self.query_one(Banner).facts = self._facts
        for screen in self.app.screen_stack:
            if isinstance(screen, LiveScreen | Follower):
                screen.show(self._facts)
        self._why = why
        names = tuple(dict.fromkeys(each.id for each in facts.view.models)) if facts.view else ()
        self.query_one(ChatPane).show_model(model, why, names, picked=picked)

    @property
    def help_name(self) -> str:
        """The keys of the page in use come first."""
        return self._page

    # --- pages ------------------------------------------------------------------------------

    def _one_page(self) -> bool:
        return self.app.size.width < WIDE or self.app.size.height < TALL

    def fit(self, size: Size) -> bool:
        """Keep the page that is in use, whatever room there is."""
        fits = super().fit(size)
        if not fits:
            self.set_focus(None)
        elif self.focused is None:
            self.action_page(self._page)
        return fits

    def on_descendant_focus(self) -> None:
        """The page follows the focus, so that a narrower terminal keeps what is in use."""
        # Where it is now: the message may tell of a focus that has moved on since.
        if self.focused is not None:
            around = self.focused.ancestors_with_self
            if self.maximized not in around:
                self.zoom_out()
            for page, selector in _PAGES.items():
                if self.query_one(selector) in around:
                    self._turn_to(page)

    def _turn_to(self, page: Page) -> None:
        self._page = page
        self.query_one(Banner).crumbs = (page.capitalize(),)
        for name in _PAGES:
            self.set_class(name == page, f"-page-{name}")

    def action_page(self, page: Page) -> None:
        """Show a page and focus what one uses there."""
        self._turn_to(page)
        targets: dict[Page, type[Widget]] = {
            "network": ReplicaTable,
            "chat": Prompt,
            "machine": EventLog,
        }
        if not self.has_class("-too-small"):
            # Not Widget.focus(), which comes later: keys in between went to the page before.
            self.set_focus(self.query_one(targets[page]))

    def action_escape(self) -> None:
        """Stop the generation; else back to all panels; else leave the prompt for the letters."""
        pane = self.query_one(ChatPane)
        if pane.stop_generation() or pane.leave_edit() or self.zoom_out():
            return
        if isinstance(self.focused, Prompt):
            self.set_focus(self.query_one("#conversation"))

    def action_chat(self, command: str, rest: str = "") -> None:
        """Run one of the chat's commands."""
        if command == "edit" and self._one_page():
            self.action_page("chat")
        if command == "copy" and not rest and (selected := self.get_selected_text()):
            copy(self, selected, "Selection")
            return
        self.query_one(ChatPane).do(command, rest)

    def on_chat_pane_ask(self) -> None:
        """A conversation stays with its model: another that is better held takes no part in it."""
        if self._facts.model is not None:
            self._chosen = name_of(self._facts.model)

    async def on_chat_pane_wants(self, message: ChatPane.Wants) -> None:
        """Open what the chat asks for."""
        message.stop()
        if message.what == "model":
            self._pick_by_name(message.name)
        elif message.what == "kept model":
            view = self._facts.view
            if view is None:
                self._chosen = message.name
            elif message.name in map(name_of, view.models):
                self._picked(message.name)
        else:
            await self.run_action(_WANTED[message.what])

    def action_parameters(self) -> None:
        """Set how the next answers are made."""
        from diffuse_tui.screens.parameters import ParametersScreen

        talk = self.query_one(ChatPane).talk
        screen = ParametersScreen(self._facts, talk.params, talk.system)
        self.app.push_screen(screen, self._parameters_set)

    def _parameters_set(self, result: tuple[Params, str] | None) -> None:
        if result is not None:
            self.query_one(ChatPane).set_settings(result[1], result[0])

    def action_waterfall(self) -> None:
        """Show where the tokens of the last answer spent their time."""
        from diffuse_tui.screens.waterfall import WaterfallScreen

        pane = self.query_one(ChatPane)
        times = pane.times
        if times is None or not times.passes:
            pane.say("no times are known of the last answer", "warning")
            return
        self.app.push_screen(WaterfallScreen(self._facts, times))

    def _pick_by_name(self, name: str) -> None:
        models = self._facts.view.models if self._facts.view else ()
        found = models_named(models, name) or [
            m for m in models if m.fingerprint == name or name.lower() in m.id.lower()
        ]
        if len(found) == 1:
            self._picked(name_of(found[0]))
        else:
            few = f"{len(found)} models on this network match" if found else "no model here is"
            why = f"{few} {clean_line(name, 60)}; Tab after /model lists them, F5 all"
            self.query_one(ChatPane).say(why, "bad")

    # --- other screens ----------------------------------------------------------------------

    def action_host(self) -> None:
        """Host a model here, or see how far that is."""
        from diffuse_tui.screens.host import HostScreen

        self.app.push_screen(HostScreen(self._facts))

    def action_pick_model(self) -> None:
        """Choose among the models of the network."""
        from diffuse_tui.screens.models import ModelScreen

        current = name_of(self._facts.model) if self._facts.model else None
        self.app.push_screen(ModelScreen(self._facts, current), self._picked)

    def action_what_if(self) -> None:
        """Ask what it means when nodes go or hosts come."""
        from diffuse_tui.screens.what_if import WhatIfScreen

        self.app.push_screen(WhatIfScreen(self._facts))

    def on_replica_panel_node_chosen(self, message: ReplicaPanel.NodeChosen) -> None:
        """Tell all that is known of the node under the cursor."""
        message.stop()
        self.open_node(message.node)

    def on_coverage_map_node_chosen(self, message: CoverageMap.NodeChosen) -> None:
        """Tell all that is known of the node under the map's cursor."""
        message.stop()
        self.open_node(message.node)

    def use_archive(self, archive: Archive) -> None:
        """From now on conversations are kept here."""
        self._kept.use(archive)

    def action_conversations(self) -> None:
        """List the conversations that are kept, to open or search them."""
        self._kept.show(self._facts)

    def on_chat_pane_export(self, message: ChatPane.Export) -> None:
        """Write the conversation to a file."""
        message.stop()
        self._kept.export(message)

    def open_node(self, node_id: str) -> None:
        """Tell all that is known of a node; afterwards the cursor is on the last one shown."""
        from diffuse_tui.screens.node import NodeScreen

        table = self.query_one(ReplicaTable)
        screen = NodeScreen(self._facts, node_id, self._history, table.keys)
        self.app.push_screen(screen, lambda _: table.move_to(screen.node_id))

    def commands(self) -> Iterator[Command]:
        """The conversations, models and nodes that can be gone to by name."""
        from diffuse_tui.screens.palette import Command

        yield from self._kept.commands()
        if self._facts.view is None:
            return
        for model in self._facts.view.models:
            pick = partial(self._picked, name_of(model))
            yield Command(f"Model: {model.id}", f"{model.state} · {model.contract}", pick)
        for node in self._facts.view.nodes:
            look = partial(self.open_node, node.node)
            yield Command(f"Node: {node.short}", node.role, look, listed=False)

    def _picked(self, name: str | None) -> None:
        if name is not None:
            self._chosen = name
            self._draw(picked=True)
