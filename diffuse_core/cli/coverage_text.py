"""Coverage as lines of text that 80 columns hold."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from diffuse_core.domain.selection import unreachable_text
from diffuse_core.domain.standing import replicas_text, state_text, variants, variants_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.view import ModelView, NodeView

WIDTH = 80
_HEAD = ("MODEL", "STATE", "LAYERS", "LEAST", "HOSTS", "DTYPE", "FINGERPRINT")


def model_rows(models: Sequence[ModelView]) -> list[tuple[str, ...]]:
    """A table of models, its heading first."""
    return [
        _HEAD,
        *(
            (
                model.id,
                model.state,
                str(model.layers),
                f"x{model.min_replicas}",
                str(model.hosts),
                model.contract,
                model.fingerprint[:12],
            )
            for model in models
        ),
    ]


def standing_lines(model: ModelView) -> list[str]:
    """How a model stands: state, what is lacking, coming and would mend it; holders by layer."""
    head = f"{model.id} in {model.contract} ({model.fingerprint[:12]}), {model.layers} layers"
    held = f"held: {replicas_text(model.replicas, model.target_replicas)}"
    return [head, *wrapped(state_text(model), "  "), *wrapped(held, "  ")]


def variant_lines(models: Iterable[ModelView]) -> list[str]:
    """Which ids are there in several ways that share no Route."""
    told = (variants_text(one) for one in variants(models))
    return [line for text in told for line in wrapped(text, "")]


def unreachable_lines(nodes: Iterable[NodeView]) -> list[str]:
    """Whose layers count as held though nobody can dial them now."""
    return wrapped(unreachable_text(nodes) or "", "")


def wrapped(text: str, indent: str) -> list[str]:
    """`text` in lines of WIDTH, all but the first indented by two more; none for no text."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
