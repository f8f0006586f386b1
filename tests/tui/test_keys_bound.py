"""Every key that the help lists does something where it is listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.containers import VerticalScroll

from diffuse_tui.app import DiffuseApp
from diffuse_tui.presenter import keys
from diffuse_tui.presenter.keys import SECTIONS, Section
from diffuse_tui.screens.conversations import ConversationsScreen
from diffuse_tui.screens.host import HostScreen
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.screens.main import MainScreen
from diffuse_tui.screens.node import NodeScreen
from diffuse_tui.screens.parameters import Form, ParametersScreen
from diffuse_tui.screens.waterfall import WaterfallScreen
from diffuse_tui.screens.what_if import SizeLine, WhatIfScreen
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.conversation_view import ConversationView
from diffuse_tui.widgets.coverage_map import CoverageMap
from diffuse_tui.widgets.cycle import Cycle
from diffuse_tui.widgets.event_log import EventLog
from diffuse_tui.widgets.event_panel import EventPanel
from diffuse_tui.widgets.line_table import LineTable
from diffuse_tui.widgets.model_input import ModelInput, Proposals
from diffuse_tui.widgets.prompt import Prompt
from diffuse_tui.widgets.replica_table import ReplicaPanel, ReplicaTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.dom import DOMNode

PLACES: dict[Section, tuple[type[DOMNode], ...]] = {
    keys.COVERAGE: (CoverageMap,),
    keys.REPLICAS: (ReplicaTable, ReplicaPanel),
    keys.MACHINE: (EventLog, EventPanel),
    keys.CHAT: (Prompt, ConversationView, ChatPane, MainScreen),
    keys.MAIN: (MainScreen, DiffuseApp),
    keys.WHAT_IF: (WhatIfScreen, SizeLine, LineTable),
    keys.HOST: (HostScreen, ModelInput, Proposals, Cycle),
    keys.CONVERSATIONS: (ConversationsScreen, LineTable),
    keys.PARAMETERS: (ParametersScreen, Form),
    keys.WATERFALL: (WaterfallScreen, LineTable),
    keys.NODE: (NodeScreen, VerticalScroll),
    keys.LIVE: (LiveScreen, DiffuseApp),
}
"""What has the focus, or is around it, where a section's keys are to work."""

TYPED = {"ctrl+j", "slash"}
"""The prompt takes these as they are typed, by no binding."""

NAMES = {
    "↑": "up",
    "↓": "down",
    "←": "left",
    "→": "right",
    "/": "slash",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    ":": "colon",
    "?": "question_mark",
    "+": "plus",
    "-": "minus",
    "Esc": "escape",
}


def named(listed: str) -> Iterator[str]:
    """The keys of a line of the help, as Textual calls them."""
    for word in listed.replace("1-9", "1 … 9").split():
        if word != "…":
            yield NAMES.get(word) or (word if len(word) == 1 else word.lower())


def test_no_section_is_left_out() -> None:
    assert {section for all_of in SECTIONS.values() for section in all_of} == set(PLACES)


@pytest.mark.parametrize("section", PLACES, ids=lambda section: section.heading)
def test_every_key_that_is_listed_is_bound_there(section: Section) -> None:
    bound: set[str] = set()
    for place in PLACES[section]:
        assert place._merged_bindings is not None
        bound |= set(place._merged_bindings.key_to_bindings)
    if section is keys.CHAT:
        bound |= TYPED
    for listed, what in section.keys:
        assert set(named(listed)) <= bound, what
