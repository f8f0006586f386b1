"""Talking to the hub: what a revision is, where its files lie, and bytes of them.

Speaks through `huggingface_hub`, so its settings count: HF_ENDPOINT, HF_TOKEN or the token that
`hf auth login` keeps, HF_HUB_OFFLINE, proxies. Everything here blocks and touches no file.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

from diffuse_core.adapters.models.hub_body import BodyReader, Want
from diffuse_core.adapters.models.hub_errors import (
    NOT_YOURS,
    HubUnreachable,
    LinkExpired,
    NobodyThere,
    PassingTrouble,
    gave_up,
    judge_answer,
    no_hub,
    plain,
)
from diffuse_core.adapters.models.hub_name import HubName, parse_hub_name
from diffuse_core.errors import DiffuseError, ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
MAX_REDIRECTS = 5
MAX_FILE = 2**48
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TAG = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True)
class Pace:
    """How patient to be. Seconds and bytes."""

    waits: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Before each try after one that brought nothing; then it is given up."""
    longest_wait: float = 60.0
    """A hub that asks for a longer pause is not waited for."""
    connect: float = 10.0
    stall: float = 30.0
    """How long the line may be silent."""
    clock: Callable[[], float] = time.monotonic
    threads: int = 4
    """Connections at a time for long ranges."""
    sample_threads: int = 8
    """Connections at a time for many short ones."""
    gap: int = 2**18
    """Ranges this close are read as one: a request costs about as much as so many bytes."""
    part: int = 2**23
    """Most bytes of one request."""


PACE = Pace()


@dataclass(frozen=True)
class Listing:
    """What a revision is: the commit, and the files it has."""

    repo: str
    commit: str
    files: tuple[str, ...]


@dataclass
class RemoteFile:
    """A file at one commit. `url` is where its content is now, maybe on another machine."""

    name: str
    size: int
    tag: str
    url: str
    served_tag: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class HubClient:
    """Asks the hub about one model. Its methods may be called from several threads."""

    def __init__(self, name: HubName, endpoint: str | None = None, pace: Pace = PACE) -> None:
        """`endpoint` is the hub's address; None takes HF_ENDPOINT or the public hub.

        Raises:
            UsageError: HF_ENDPOINT or the token is malformed.
        """
        # No tidings about the user's programs for the hub, whatever its library would send.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from huggingface_hub import constants, get_token
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        self.name = name
        self.pace = pace
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        if urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise UsageError(f"HF_ENDPOINT is {self.endpoint[:100]!r}, which is no http address")
        self._token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        if self._token is not None and not (self._token.isascii() and self._token.isprintable()):
            raise UsageError("the hub's token (HF_TOKEN) has characters that no token has")
        self._headers = build_hf_headers(token=self._token or False, library_name="diffuse")

    def look_up(self, stopped: threading.Event) -> Listing:
        """The commit that the name means now, and its files.

        Raises:
            ModelUnknown: there is no such model or revision, it is gated, or out of reach.
        """
        # Before anything was heard of the hub, nobody there is no trouble that passes.
        return self._patiently(self._look_up, stopped, NobodyThere)

    def locate(self, commit: str, file: str, stopped: threading.Event) -> RemoteFile:
        """Size, tag and place of a file.

        Raises:
            ModelUnknown: it is not there, or out of reach.
        """
        return self._patiently(lambda: self._locate(commit, file), stopped)

    def read(
        self, commit: str, remote: RemoteFile, start: int, end: int, stopped: threading.Event
    ) -> Generator[tuple[int, bytes], None, None]:
        """Bytes `start:end` of a file as they come, each with its position.

        Raises:
            ModelUnknown: it cannot be reached any more, after several tries.
            ModelUnusable: what comes contradicts what was promised.
        """
        at, fruitless = start, 0
        while at < end:
            want = Want(remote.name, remote.size, at, end)
            try:
                for piece in self._stream(remote, want):
                    yield at, piece
                    at += len(piece)
                problem = PassingTrouble("the connection ended early")
            except PassingTrouble as trouble:
                problem = trouble
            if at >= end:
                return
            fruitless = 0 if at - want.start >= want.fair_share else fruitless + 1
            self._pause(problem, fruitless, stopped)
            if isinstance(problem, LinkExpired):
                fresh = self.locate(commit, remote.name, stopped)
                self._take_over(remote, fresh)

    def _take_over(self, remote: RemoteFile, fresh: RemoteFile) -> None:
        if (fresh.size, fresh.tag) != (remote.size, remote.tag):
            raise ModelUnusable(
                f"{remote.name} of {self.name} changed on the hub while it was read; try again"
            )
        with remote.lock:
            remote.url, remote.served_tag = fresh.url, None

    def _patiently(
        self,
        ask: Callable[[], T],
        stopped: threading.Event,
        *final: type[PassingTrouble],
    ) -> T:
        fruitless = 0
        while True:
            try:
                return ask()
            except final as trouble:
                raise gave_up(self.name, trouble, self.endpoint) from trouble
            except PassingTrouble as trouble:
                fruitless += 1
                self._pause(trouble, fruitless, stopped)

    def _pause(self, trouble: PassingTrouble, fruitless: int, stopped: threading.Event) -> None:
        """Wait before another try, as long as the hub asks for; or give up."""
        waits = self.pace.waits
        own = waits[fruitless - 1] if 0 < fruitless <= len(waits) else 0.0
        wait = max(own, trouble.after or 0.0)
        if fruitless > len(waits) or wait > self.pace.longest_wait:
            raise gave_up(self.name, trouble, self.endpoint) from trouble
        stopped.wait(wait)
        if stopped.is_set():
            raise gave_up(self.name, trouble, self.endpoint) from trouble

    def _look_up(self) -> Listing:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.endpoint, token=self._token or False, library_name="diffuse")
        name = self.name
        try:
            info = self._asking(
                lambda: api.model_info(
                    name.repo, revision=name.revision, timeout=self.pace.connect
                )
            )
            files = tuple(str(entry.rfilename) for entry in info.siblings or ())
            commit, repo = str(info.sha), str(info.id)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise no_hub(name, self.endpoint, "its answer is not understood") from error
        known = parse_hub_name(repo)
        if _COMMIT.fullmatch(commit) is None or known is None or known.revision is not None:
            raise no_hub(name, self.endpoint, "it names no commit")
        return Listing(repo, commit, files)

    def _locate(self, commit: str, file: str) -> RemoteFile:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self.name.repo, file, revision=commit, endpoint=self.endpoint)
        found = self._asking(
            lambda: get_hf_file_metadata(
                url, token=self._token or False, timeout=self.pace.connect, library_name="diffuse"
            )
        )
        if found.commit_hash != commit or found.etag is None or found.size is None:
            raise no_hub(self.name, self.endpoint, f"it does not say what {file} is")
        if not 0 <= found.size < MAX_FILE or _TAG.fullmatch(found.etag) is None:
            raise no_hub(self.name, self.endpoint, f"it says odd things of {file}")
        return RemoteFile(file, found.size, found.etag, urljoin(url, found.location))

    def _asking(self, ask: Callable[[], T]) -> T:
        """Call the hub's library, and turn its errors into ours."""
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            return ask()
        except OfflineModeIsEnabled as error:
            raise self._offline() from error
        except HfHubHTTPError as error:
            answer = error.response
            raise self._judged(answer, error.server_message or "") from error
        except http_error() as error:
            raise self._no_connection(error) from error

    def _judged(self, answer: Any, told: str = "") -> DiffuseError | PassingTrouble:
        return judge_answer(
            answer.status_code, answer.headers, self.name, self.endpoint, told, self._token
        )

    def _offline(self) -> HubUnreachable:
        return HubUnreachable(
            f"{self.name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it; unset "
            "it, or give the path of a model that is here"
        )

    def _no_connection(self, error: Exception) -> PassingTrouble:
        # The address may hold a signature that gives access: only the kind of error is told,
        # and what the system said of the connection.
        name, told = type(error).__name__, plain(str(error), self._token)
        kind = NobodyThere if name in ("ConnectError", "ConnectTimeout") else PassingTrouble
        return kind(f"{name}: {told}" if told else name)

    def _stream(self, remote: RemoteFile, want: Want) -> Generator[bytes, None, None]:
        """One request, with its redirects; the token goes to the hub and to nobody else."""
        from huggingface_hub import get_session
        from huggingface_hub.errors import OfflineModeIsEnabled

        with remote.lock:
            url, tag = remote.url, remote.served_tag
        pace = self.pace
        reader = BodyReader(want, pace.clock, pace.stall)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                with get_session().stream(
                    "GET",
                    url,
                    headers=self._headers_for(url, want),
                    timeout=(pace.connect, pace.stall, pace.stall, pace.stall),
                    follow_redirects=False,
                ) as answer:
                    if answer.has_redirect_location:
                        url = self._next_url(url, answer.headers["Location"])
                        continue
                    if answer.status_code not in (200, 206):
                        raise self._refusal(answer, url, want)
                    served = reader.check(answer.status_code, answer.headers, tag)
                    with remote.lock:
                        remote.served_tag = remote.served_tag or served
                    yield from reader.pieces(answer.iter_raw())
                    return
        except OfflineModeIsEnabled as error:
            raise self._offline() from error
        except http_error() as error:
            raise self._no_connection(error) from error
        raise no_hub(self.name, self.endpoint, "it redirects without end")

    def _headers_for(self, url: str, want: Want) -> dict[str, str]:
        ours = _origin(url) == _origin(self.endpoint)
        told = {k: v for k, v in self._headers.items() if ours or k.lower() != "authorization"}
        return {**told, "Accept-Encoding": "identity", **want.headers()}

    def _next_url(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
        if scheme not in ("http", "https") or (scheme == "http" and url.startswith("https:")):
            raise no_hub(self.name, self.endpoint, "it redirects to an unprotected address")
        return target

    def _refusal(self, answer: Any, url: str, want: Want) -> Exception:
        if answer.status_code == 416:
            return ModelUnusable(
                f"{want.file} of {self.name} is shorter than the hub said: it changed; try again"
            )
        if answer.status_code in (*NOT_YOURS, 410) and _origin(url) != _origin(self.endpoint):
            return LinkExpired(f"HTTP {answer.status_code} where the file's content lies")
        return self._judged(answer)


def http_error() -> type[Exception]:
    """The base of all errors of the HTTP library that this `huggingface_hub` uses."""
    from huggingface_hub import errors

    found: type[Exception] = getattr(errors, "HTTPError")  # noqa: B009  (not in its typed face)
    return found


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
