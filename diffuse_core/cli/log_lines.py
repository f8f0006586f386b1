"""Log lines: for people, for the journal, or as JSON; to stderr, or to a file that stays small.

Prompts and answers are never logged at any level.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import logging.handlers
import os
import stat
import sys
import threading
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

MAX_LOG_BYTES = 8 * 2**20
KEPT_LOGS = 3
"""Beside the one that is written, so that all together take four times MAX_LOG_BYTES."""
MAX_LINE = 16 * 1024
"""Characters of a line that something else than our log wrote to stderr."""
_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""As in syslog(3): what the journal takes a line for that begins with it, see sd-daemon(3)."""
_DEBUG = 7


class PlainLines(logging.Formatter):
    """Lines for people, in which nothing that others sent controls the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        return clean(super().format(record))


class JournalLines(PlainLines):
    """The same for the journal: it notes the time itself, and reads how grave a line is."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        priority = next((code for level, code in _PRIORITIES if record.levelno >= level), _DEBUG)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).split("\n"))


class JsonLines(logging.Formatter):
    """One JSON object a line, for log collectors.

    Always there: time (ISO 8601 with milliseconds and zone), level, logger, message, node (the
    short form of its id, null before it is known). `exception` holds a traceback. What a line
    brings as `extra` follows under its own names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "node": self.node,
        }
        extra = record.__dict__.keys() - _STANDARD - line.keys()
        line |= {key: record.__dict__[key] for key in sorted(extra)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file for its owner's eyes only, begun anew when it is large; a few old ones are kept.

    Where our stdout and stderr go to the same file, they go along.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8")

    def _open(self) -> IO[str]:  # type: ignore[override]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        # A pipe that nobody reads would be waited for.
        handle = os.open(self.baseFilename, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
        # /dev/null is everybody's.
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Begin a new file."""
        along = [number for number in (1, 2) if self._is_ours(number)]
        super().doRollover()
        if self.stream is not None:
            for number in along:
                os.dup2(self.stream.fileno(), number)

    def _is_ours(self, number: int) -> bool:
        with contextlib.suppress(OSError, ValueError):
            mine = None if self.stream is None else os.fstat(self.stream.fileno())
            return mine is not None and os.path.samestat(os.fstat(number), mine)
        return False


class _Stderr(io.TextIOBase):
    """Stands in for sys.stderr: what anything writes there becomes lines of the log."""

    def __init__(self, real: IO[str]) -> None:
        self._real = real
        self._held = threading.local()

    def write(self, text: str) -> int:
        """Log each line; an unfinished one waits for its end."""
        if getattr(self._held, "busy", False):
            # The log itself has something to complain about.
            return self._real.write(text)
        waiting = getattr(self._held, "text", "") + text.replace("\r", "\n")
        *lines, rest = waiting.split("\n")
        self._held.text = rest[-MAX_LINE:]
        self._held.busy = True
        try:
            for line in filter(str.strip, lines):
                logging.getLogger("stderr").warning("%s", clean(line[:MAX_LINE]))
        finally:
            self._held.busy = False
        return len(text)

    def flush(self) -> None:
        """What is written is gone at once."""

    def fileno(self) -> int:
        """The descriptor of the real one."""
        return self._real.fileno()

    def isatty(self) -> bool:
        """No terminal: nobody is to draw here."""
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of what is written."""
        return "utf-8"


def set_logging(
    level: str | None, form: str, default: str = "warning", file: Path | None = None
) -> None:
    """Log to stderr, or to `file` instead. Prompts and answers are never logged at any level.

    With the form "json" every line is an object: also warnings, tracebacks, and what libraries
    and other threads print.

    Raises:
        UsageError: the file cannot be written.
    """
    handler = _handler(file)
    handler.setFormatter(_formatter(form, to_file=file is not None))
    root = logging.getLogger()
    for old in root.handlers:
        if isinstance(old, LogFile):
            old.close()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("diffuse_core").setLevel((level or default).upper())
    if form == "json" or file is not None:
        _take_all()
    if form == "json" and file is None and not isinstance(sys.stderr, _Stderr):
        sys.stderr = _Stderr(sys.stderr)


def name_node(node: str) -> None:
    """From now on JSON lines say that this node wrote them; `node` is the short form of its id."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.node = node


@contextlib.contextmanager
def errors_logged(form: str, file: Path | None) -> Iterator[None]:
    """Log the error that ends a service where its log is no text on stderr, and then exit.

    Raises:
        SystemExit: with the error's exit code.
    """
    if form != "json" and file is None:
        yield
        return
    try:
        yield
    except DiffuseError as error:
        same = file is not None and _same_file(file)
        if same and form != "json":
            # Printed to stderr it gets there.
            raise
        log = logging.getLogger("diffuse_core")
        log.error("%s", error, extra={"exit_code": error.exit_code})  # noqa: TRY400 - not a defect
        if file is not None and not same:
            raise
        raise SystemExit(error.exit_code) from None


def _same_file(file: Path) -> bool:
    """Whether our stderr goes to the log file: then all has been said there."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.path.samestat(os.fstat(sys.stderr.fileno()), file.stat())
    return False


def _handler(file: Path | None) -> logging.Handler:
    if file is None:
        stream = sys.stderr
        return logging.StreamHandler(stream._real if isinstance(stream, _Stderr) else stream)
    try:
        return LogFile(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--log-file: cannot write {str(file)!r}: {reason}") from error


def _formatter(form: str, *, to_file: bool) -> logging.Formatter:
    if form == "json":
        return JsonLines()
    if to_file:
        return PlainLines("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")
    if _to_journal():
        return JournalLines("%(message)s")
    return PlainLines("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")


def _to_journal() -> bool:
    """Whether stderr is the journal's: systemd.exec(5) says how JOURNAL_STREAM tells."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = os.fstat(sys.stderr.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False


def _take_all() -> None:
    """Log what Python would print: warnings, and what nobody caught."""
    logging.captureWarnings(capture=True)

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        text = "a defect of Diffuse ended this process"
        logging.getLogger("diffuse_core").critical(text, exc_info=(kind, error, trace))

    def in_thread(told: threading.ExceptHookArgs) -> None:
        name = told.thread.name if told.thread is not None else "a thread"
        error = told.exc_value
        logging.getLogger("diffuse_core").error("thread %s failed", name, exc_info=error)

    def unraisable(told: sys.UnraisableHookArgs) -> None:
        text = told.err_msg or "an error could not be raised"
        logging.getLogger("diffuse_core").error("%s", text, exc_info=told.exc_value)

    sys.excepthook = uncaught
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable
