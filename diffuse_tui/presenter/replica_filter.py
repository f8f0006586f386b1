"""Which nodes the words of a filter leave in the replica table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice
from diffuse_tui.presenter.replicas import met, node_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import ModelView, NodeView

MOST_WORDS = 16

_RANGE = re.compile(r"(?:layers?:)?(\d{1,6}):(\d{1,6})")
_LAYER = re.compile(r"layers?:(\d{1,6})")


def node_filter(text: str, model: ModelView | None) -> Callable[[NodeView], bool] | None:
    """What decides whether a node is shown; None when every node is.

    All words must match, in any case. A word matches the beginning of an id, or a part of the
    role, the state, how the node is met, its version or its model. `12:18` means those that hold
    all of these layers, `layer:14` those that hold that one, and `!word` those not matched by it.
    """
    tests = [_test(word) for word in text.lower().split()[:MOST_WORDS]]
    if not tests:
        return None

    def shown(node: NodeView) -> bool:
        words = _words(node, model)
        return all(test(node, words) for test in tests)

    return shown


def _words(node: NodeView, model: ModelView | None) -> str:
    return " ".join(
        (
            node.role,
            node.liveness,
            node_state(node, model)[1],
            met(node),
            node.version,
            node.model or "",
            node.contract or "",
            str(node.slice) if node.slice is not None else "",
            node.state or "",
            "me" if node.me else "",
        )
    ).lower()


def _test(word: str) -> Callable[[NodeView, str], bool]:
    if len(word) > 1 and word.startswith("!"):
        inner = _test(word[1:])
        return lambda node, words: not inner(node, words)
    layers = _layers(word)
    if layers is not None:
        return lambda node, words: node.slice is not None and node.slice.contains(layers)
    return lambda node, words: word in words or node.node.startswith(word)


def _layers(word: str) -> Slice | None:
    """The layers that a word means; None for a word, or a range that is not typed to its end."""
    one = _LAYER.fullmatch(word)
    if one is not None:
        return Slice(int(one[1]), int(one[1]) + 1)
    both = _RANGE.fullmatch(word)
    if both is not None and int(both[1]) < int(both[2]):
        return Slice(int(both[1]), int(both[2]))
    return None
