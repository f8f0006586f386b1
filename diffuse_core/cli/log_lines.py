"""Log lines: for people, for the journal, or as JSON; to stderr, or to a file that stays small.

Prompts and answers are never logged at any level.
"""

from __future__ import annotations

import atexit
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

import click

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


class _Lines(io.TextIOBase):
    """Stands in for sys.stderr or sys.stdout: what is written there becomes lines of the log."""

    def __init__(self, real: IO[str], logger: str) -> None:
        self.real = real
        self._logger = logger
        self._held = threading.local()

    def write(self, text: str) -> int:
        """Log each line; an unfinished one waits for its end."""
        if getattr(self._held, "busy", False):
            # The log itself has something to complain about.
            return self.real.write(text)
        waiting = getattr(self._held, "text", "") + text.replace("\r", "\n")
        *lines, rest = waiting.split("\n")
        self._held.text = rest[-MAX_LINE:]
        self._held.busy = True
        try:
            for line in filter(str.strip, lines):
                logging.getLogger(self._logger).warning("%s", clean(line[:MAX_LINE]))
        finally:
            self._held.busy = False
        return len(text)

    def flush(self) -> None:
        """Whole lines are gone at once; progress bars flush what is none yet."""

    def finish(self) -> None:
        """Log what this thread has written of a line that gets no end any more."""
        if getattr(self._held, "text", ""):
            self.write("\n")

    def fileno(self) -> int:
        """The descriptor of the real one."""
        return self.real.fileno()

    def isatty(self) -> bool:
        """No terminal: nobody is to draw here."""
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of what is written."""
        return "utf-8"


def set_logging(
    level: str | None,
    form: str,
    default: str = "warning",
    file: Path | None = None,
    *,
    no_data: bool = False,
) -> None:
    """Log to stderr, or to `file` instead. Prompts and answers are never logged at any level.

    With the form "json" every line is an object: also warnings, tracebacks, and what libraries
    and other threads print, on stdout as well where the command has `no_data` to write there.

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
    as_json = form == "json"
    if as_json:
        atexit.register(finish_lines)
    if as_json or file is not None:
        _take_all()
    elif isinstance(sys.stderr, _Lines):
        _give_back()
    sys.stderr = _Lines(_real(sys.stderr), "stderr") if as_json else _real(sys.stderr)
    sys.stdout = _Lines(_real(sys.stdout), "stdout") if as_json and no_data else _real(sys.stdout)


def finish_lines() -> None:
    """Log what was written of lines that get no end any more, as this process ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Lines):
            stream.finish()


def _real(stream: Any) -> Any:
    return stream.real if isinstance(stream, _Lines) else stream


def _as_json() -> JsonLines | None:
    """What makes objects of lines; None where they are for people."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    return next((one for one in formatters if isinstance(one, JsonLines)), None)


def lines_are_json() -> bool:
    """Whether lines of the log are for programs."""
    return _as_json() is not None


def tell(text: str, *, err: bool = False, level: int = logging.INFO, **more: Any) -> None:
    """Print what a command says of itself; where the log is JSON it is a line of that.

    Args:
        text: For people.
        err: Print to stderr.
        level: How grave it is. It is told whatever --log-level says.
        more: The same in pieces, for programs.
    """
    if _as_json() is None:
        click.echo(text, err=err)
        return
    log = logging.getLogger("diffuse_core.cli")
    log.handle(log.makeRecord(log.name, level, "", 0, text, (), None, extra=more))


def tell_error(message: str, exit_code: int) -> bool:
    """Say on stderr what ends a command, as an object; false, and not done, where lines are text.

    In a log file it is not: see `errors_logged`.
    """
    formatter = _as_json()
    if formatter is None:
        return False
    log, more = logging.getLogger("diffuse_core"), {"exit_code": exit_code}
    record = log.makeRecord(log.name, logging.ERROR, "", 0, message, (), None, extra=more)
    with contextlib.suppress(OSError, ValueError):
        print(formatter.format(record), file=_real(sys.stderr), flush=True)
    return True


def name_node(node: str) -> None:
    """From now on JSON lines say that this node wrote them; `node` is the short form of its id."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.node = node


@contextlib.contextmanager
def errors_logged(file: Path | None) -> Iterator[None]:
    """Log the error that ends a service where its log is a file; who runs it is told as well."""
    try:
        yield
    except DiffuseError as error:
        if file is not None and not _same_file(file):
            log = logging.getLogger("diffuse_core")
            log.error("%s", error, extra={"exit_code": error.exit_code})  # noqa: TRY400 - no defect
        raise


def _same_file(file: Path) -> bool:
    """Whether our stderr goes to the log file: then all has been said there."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.path.samestat(os.fstat(sys.stderr.fileno()), file.stat())
    return False


def _handler(file: Path | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(_real(sys.stderr))
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


def _give_back() -> None:
    """Undo `_take_all`."""
    logging.captureWarnings(capture=False)
    sys.excepthook = sys.__excepthook__
    threading.excepthook = threading.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__
