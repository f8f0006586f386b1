"""A `query` under way: its answer is read as it comes, so that a test can act in the middle."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

PIECE_BYTES = 4096


class Asking:
    """Reads what a process says. Use as a context: the process is killed at the end of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._said = b""
        self._errors = b""
        self._times: list[float] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with stream:
            # `read1` gives what is there; `read` would wait for all of it.
            while piece := stream.read1(PIECE_BYTES):  # type: ignore[attr-defined]
                with self._news:
                    self._said += piece
                    self._times.append(time.monotonic())
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def _listen_errors(self) -> None:
        stream = self.process.stderr
        assert stream is not None
        with stream:
            self._errors = stream.read()

    @property
    def words(self) -> list[str]:
        """The words of the answer so far."""
        return self._said.decode().split()

    @property
    def errors(self) -> str:
        """What it wrote to stderr; all of it once it ended."""
        return self._errors.decode()

    def until_words(self, count: int, seconds: float = 60.0) -> float:
        """Wait until it said so many words; the monotonic time it did."""
        with self._news:
            said = self._news.wait_for(lambda: len(self.words) >= count, seconds)
        assert said, (self.words, self.errors, self.process.poll())
        return time.monotonic()

    def finish(self, seconds: float = 120.0) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join()
        return code

    def longest_gap(self, since: float) -> float:
        """The longest time without a word, in seconds, of those that ended after `since`."""
        pairs = zip(self._times, self._times[1:], strict=False)
        return max((later - before for before, later in pairs if later >= since), default=0.0)
