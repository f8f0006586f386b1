"""How models of the hub are named: `organisation/name`, or `name` alone, and maybe `@revision`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}"
_NAME = re.compile(
    rf"(?P<repo>{_PIECE}(?:/{_PIECE})?)(?:@(?P<revision>[A-Za-z0-9_][A-Za-z0-9_./-]{{0,199}}))?"
)
_GGUF = re.compile(rf"(?P<repo>{_PIECE}/{_PIECE})/(?P<file>[A-Za-z0-9_./-]+\.gguf)")
_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json", ".git")
MAX_REPO = 128
"""As long as a model's id on the network may be."""


@dataclass(frozen=True)
class HubName:
    """A repository, and the branch, tag or commit of it; None is its main branch."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def parse_hub_name(text: str) -> HubName | None:
    """The name that `text` is, or None when it can be none, e.g. because it is a path.

    The hub's own rules: letters, digits, `_`, `.`, `-`, but neither `--` nor `..`.
    """
    match = _NAME.fullmatch(text)
    if match is None or ".." in text or "--" in match["repo"] or len(match["repo"]) > MAX_REPO:
        return None
    if match["repo"].lower().endswith(_FILES) or match["repo"].endswith((".", "-")):
        return None
    return HubName(match["repo"], match["revision"])


def gguf_of_hub(text: str) -> tuple[str, str] | None:
    """Repository and file when `text` names a GGUF file inside a repository."""
    match = _GGUF.fullmatch(text)
    return None if match is None or ".." in text else (match["repo"], match["file"])
