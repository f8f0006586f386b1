"""Taking exactly the bytes that were asked for out of an HTTP answer, whatever it sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.hub_errors import PassingTrouble
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MAX_SURPLUS = 2**23
"""Bytes read in vain at most when an answer starts before what was asked for."""
FAIR_SHARE = 2**14
"""A try that brought so many bytes was worth it."""
LEAST_RATE = 1024.0
"""Bytes a second below which a line counts as stalled."""

_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")


@dataclass(frozen=True)
class Want:
    """Bytes `start:end` of a file of `size` bytes."""

    file: str
    size: int
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether this is all of the file."""
        return (self.start, self.end) == (0, self.size)

    @property
    def fair_share(self) -> int:
        """Bytes from which on a try was no vain one."""
        return min(FAIR_SHARE, self.end - self.start)

    def headers(self) -> dict[str, str]:
        """What to ask for."""
        return {} if self.whole else {"Range": f"bytes={self.start}-{self.end - 1}"}


class BodyReader:
    """Checks one answer and takes what is wanted from it."""

    def __init__(self, want: Want, clock: Callable[[], float], stall: float) -> None:
        self._want = want
        self._clock = clock
        self._stall = stall
        self._skip = 0

    def check(self, status: int, headers: Mapping[str, str], tag: str | None) -> str | None:
        """Look at the head of a 200 or 206; the content's tag, to be passed in the next time.

        Raises:
            ModelUnusable: it contradicts what was promised, or gives no parts of files.
        """
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise self._odd("it is sent compressed, though asked for as it is")
        served = headers.get("ETag") or None
        if tag is not None and served is not None and served != tag:
            raise self._odd("it changed while it was read")
        if status == 206:
            self._check_range(headers.get("Content-Range", ""))
        else:
            self._check_whole(headers.get("Content-Length"))
        return served

    def pieces(self, raw: Iterable[bytes]) -> Iterator[bytes]:
        """The wanted bytes; what comes too much is not read.

        Raises:
            PassingTrouble: they come too slowly.
        """
        begun = self._clock()
        skip, left, came = self._skip, self._want.end - self._want.start, 0
        for chunk in raw:
            came += len(chunk)
            passed = self._clock() - begun
            if passed > self._stall and came < passed * LEAST_RATE:
                raise PassingTrouble(f"only {came} bytes in {passed:.0f} s")
            piece = chunk[skip : skip + left]
            skip -= min(skip, len(chunk))
            if piece:
                left -= len(piece)
                yield piece
            if not left:
                return

    def _check_range(self, content_range: str) -> None:
        match = _CONTENT_RANGE.fullmatch(content_range.strip())
        if match is None:
            raise self._odd("a part of it comes without saying which")
        first, last, size = int(match[1]), int(match[2]), match[3]
        if size not in ("*", str(self._want.size)):
            raise self._odd(f"it has {size} bytes now, not {self._want.size}")
        if first != self._want.start or last < first:
            raise self._odd(
                f"bytes {first} to {last} come where those from {self._want.start} on were asked "
                "for"
            )

    def _check_whole(self, length: str | None) -> None:
        """An answer that ignores the range: fine if the wanted bytes are near its start."""
        if length is not None and length != str(self._want.size):
            raise self._odd(f"it has {length[:15]} bytes now, not {self._want.size}")
        if self._want.start > MAX_SURPLUS:
            raise ModelUnusable(
                f"{self._want.file}: what serves it does not give parts of files, and Diffuse "
                "does not fetch all for a slice; look for a proxy in the way, or download the "
                "model and give its directory"
            )
        self._skip = self._want.start

    def _odd(self, what: str) -> ModelUnusable:
        return ModelUnusable(f"{self._want.file} of the hub: {what}; try again later")
