"""What the hub's refusals mean for a user, and which of them may pass by themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError, ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.models.hub_name import HubName

MAX_REASON = 300
PASSING = (408, 429, 500, 502, 503, 504)
"""HTTP statuses that another try may not meet."""

NOT_YOURS = (401, 403, 404)
_LIMIT = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")


class HubUnreachable(ModelUnknown):
    """The hub cannot be asked now; what was fetched before still counts."""


class PassingTrouble(Exception):  # noqa: N818
    """Something that another try may not meet; `after` is how long the hub asks to wait (s)."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class NobodyThere(PassingTrouble):
    """No connection came about."""


class LinkExpired(PassingTrouble):
    """The address that the hub gave for a file's content is not valid any more."""


def plain(text: str, secret: str | None = None) -> str:
    """A stranger's words on one line, bounded, and without the user's token."""
    if secret:
        text = text.replace(secret, "…")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_REASON]


def judge_answer(
    status: int,
    headers: Mapping[str, str],
    name: HubName,
    endpoint: str,
    told: str = "",
    secret: str | None = None,
) -> DiffuseError | PassingTrouble:
    """What an answer that is no success means; `told` is the reason in its body."""
    reason = plain(headers.get("X-Error-Message") or told, secret)
    if status in PASSING:
        words = "too many requests" if status == 429 else f"HTTP {status}"
        return PassingTrouble(f"{words}: {reason}" if reason else words, _wait_of(headers))
    code = headers.get("X-Error-Code", "")
    because = f" ({reason})" if reason else ""
    page = f"{endpoint}/{name.repo}"
    if code == "GatedRepo":
        step = (
            "accept its terms there with the account of your token"
            if secret
            else "accept its terms there and set HF_TOKEN to a token of that account"
        )
        return ModelUnknown(f"{name.repo} is gated{because}; see {page}, {step}")
    if code == "RevisionNotFound":
        return ModelUnknown(
            f"{name.repo} has no revision {name.revision or 'main'}{because}; "
            "check the branch, tag or commit after the @"
        )
    if code == "EntryNotFound":
        return ModelUnknown(f"{name} lacks a file{because}; it is no complete model")
    if code != "RepoNotFound" and secret and status == 401:
        return ModelUnknown(f"the hub does not accept your token{because}; renew HF_TOKEN")
    if code == "RepoNotFound" or status in (401, 404):
        step = "that your token may read it" if secret else "set HF_TOKEN if it is private"
        return ModelUnknown(
            f"the hub has no model {name.repo} that you may see{because}; "
            f"check the name, and {step}"
        )
    if status == 403:
        return ModelUnknown(
            f"the hub denies access to {name.repo}{because}; see {page}, and check what your "
            "HF_TOKEN may do"
        )
    return ModelUnknown(f"the hub answers HTTP {status} for {name}{because}; try again later")


def gave_up(name: HubName, trouble: PassingTrouble, endpoint: str) -> HubUnreachable:
    """The error for a trouble that did not pass."""
    later = f", in {trouble.after:.0f} s or later" if trouble.after else ""
    return HubUnreachable(
        f"{name} cannot be fetched from {endpoint} ({trouble.reason}); check the connection and "
        f"try again{later}, which goes on where this ended"
    )


def no_hub(name: HubName, endpoint: str, why: str) -> HubUnreachable:
    """The error for an answer that no hub gives."""
    return HubUnreachable(
        f"{name} cannot be fetched: what answers at {endpoint} is no model hub ({plain(why)}); "
        "check HF_ENDPOINT, and whether a login page or proxy is in the way"
    )


def _wait_of(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After, or until the hub's own limit of requests starts anew.

    See draft-ietf-httpapi-ratelimit-headers-09: `RateLimit: "api";r=0;t=55`. A date in Retry-After
    is not understood; the hub sends none.
    """
    value = headers.get("Retry-After", "").strip()
    if not value and (limit := _LIMIT.search(headers.get("RateLimit", ""))):
        value = limit[1]
    return float(value) if value.isascii() and value.isdigit() and len(value) < 9 else None
