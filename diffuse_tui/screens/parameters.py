"""How the next answers are to be made: each setting with its range, and the system prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static, TextArea

from diffuse_core.domain.context import MAX_SYSTEM
from diffuse_tui.presenter.chips import typable
from diffuse_tui.presenter.parameters import CHOICE, PRESETS, preset_of, with_preset
from diffuse_tui.presenter.settings_text import (
    NAMES,
    SETTINGS,
    parse_setting,
    range_text,
    setting_text,
)
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.watching import forget_closed

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Paste

    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.parameters import Params


class Form(VerticalScroll, can_focus=False):
    """Arrows go from setting to setting, where they would scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next setting", show=False),
        Binding("up", "app.focus_previous", "Setting before", show=False),
    ]


class SystemPrompt(TextArea):
    """Shows nothing raw: what is pasted may hold what steers a terminal."""

    def __init__(self, text: str) -> None:
        super().__init__(text, id="system", compact=True, tab_behavior="focus")
        self.cursor_blink = False

    def on_paste(self, event: Paste) -> None:
        """Control characters become visible."""
        event.stop()
        event.prevent_default()
        self.replace(typable(event.text), *self.selection, maintain_selection_offset=False)


class ParametersScreen(LiveScreen["tuple[Params, str]"]):
    """Gives back settings and system prompt, or None when left unchanged.

    Args:
        facts: The newest picture.
        params: The settings as they are.
        system: The system prompt, "" for none.
    """

    CRUMB = "Parameters"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "Apply", priority=True),
        Binding("enter", "apply", "Apply", show=False),
    ]

    def __init__(self, facts: Facts, params: Params, system: str) -> None:
        super().__init__(facts)
        self._params = params
        self._system = system

    def compose_body(self) -> ComposeResult:
        """Presets, a row for each setting, the system prompt."""
        with Form(id="parameters"):
            with Horizontal(classes="setting presets"):
                yield Static("Preset", classes="setting-label")
                for name in PRESETS:
                    yield Button(f"○ {name}", id=f"preset-{name}", compact=True)
            for setting in SETTINGS:
                with Horizontal(classes="setting"):
                    yield Static(setting.label, classes="setting-label", markup=False)
                    yield Input(
                        setting_text(self._params, setting.name),
                        id=f"set-{setting.name}",
                        compact=True,
                    )
                    yield Static("", id=f"told-{setting.name}", classes="told", markup=False)
            with Horizontal(classes="setting"):
                yield Static("System prompt", classes="setting-label", markup=False)
                yield Static("", id="told-system", classes="told", markup=False)
            yield SystemPrompt(typable(self._system))

    def on_mount(self) -> None:
        """Start in the first setting."""
        for field in self.query(Input):
            field.cursor_blink = False
        self.set_focus(self.query_one(f"#set-{NAMES[0]}"))
        self._check()

    def on_unmount(self) -> None:
        """Let go of the field for the system prompt, which follows the theme."""
        forget_closed(self.app, "theme")

    def show_facts(self, facts: Facts) -> None:
        """The network changes nothing here."""

    def on_input_changed(self, message: Input.Changed) -> None:
        """Say at once what cannot be."""
        message.stop()
        self._check()

    def on_text_area_changed(self, message: TextArea.Changed) -> None:
        """Say at once when it is too long."""
        message.stop()
        self._check()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Enter applies."""
        message.stop()
        self.action_apply()

    def on_button_pressed(self, message: Button.Pressed) -> None:
        """Fill in a preset; nothing is applied yet."""
        message.stop()
        name = (message.button.id or "").removeprefix("preset-")
        chosen = with_preset(self._params, name)
        for setting in SETTINGS:
            if setting.field in CHOICE:
                field = self.query_one(f"#set-{setting.name}", Input)
                field.value = setting_text(chosen, setting.name)

    def action_apply(self) -> None:
        """Give back what is set; with a mistake in it, go there."""
        params, wrong = self._check()
        if wrong is None:
            text = self.query_one(TextArea).text
            unchanged = text == typable(self._system)
            self.dismiss((params, self._system if unchanged else text.strip()))
        else:
            self.set_focus(self.query_one(wrong))

    def _check(self) -> tuple[Params, str | None]:
        """The settings as they stand, and the first that cannot be; each is told beside it."""
        params, wrong = self._params, None
        for setting in SETTINGS:
            field = self.query_one(f"#set-{setting.name}", Input)
            parsed = parse_setting(params, setting.name, field.value)
            said = " · ".join(filter(None, (range_text(setting.name), setting.hint)))
            if isinstance(parsed, str):
                # The name stands before it already.
                said = f"✖ {parsed.removeprefix(f'{setting.name} must be ')}"
                wrong = wrong or f"#set-{setting.name}"
            else:
                params = parsed
            self._tell(setting.name, said, bad=isinstance(parsed, str))
        length = len(self.query_one(TextArea).text)
        too_long = length > MAX_SYSTEM
        said = f"✖ {length} characters: at most {MAX_SYSTEM}" if too_long else "for all answers"
        self._tell("system", said, bad=too_long)
        for name in PRESETS:
            button, chosen = self.query_one(f"#preset-{name}", Button), preset_of(params) == name
            button.label = f"{'●' if chosen else '○'} {name}"
            button.set_class(chosen, "chosen")
        return params, wrong or ("#system" if too_long else None)

    def _tell(self, name: str, text: str, *, bad: bool) -> None:
        told = self.query_one(f"#told-{name}", Static)
        told.update(Content(text))
        told.set_class(bad, "wrong")
