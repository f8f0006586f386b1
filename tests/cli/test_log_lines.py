"""Log lines: one JSON object each, whoever writes them; files that stay small."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diffuse_core.cli import log_lines
from diffuse_core.cli.log_lines import JournalLines, JsonLines, LogFile

KEYS = ["time", "level", "logger", "message", "node"]
NOISE = """
import asyncio, logging, sys, threading, warnings
from diffuse_core.cli.log_lines import name_node, set_logging
set_logging("debug", "json")
name_node("abcd1234")
log = logging.getLogger("diffuse_core.test")
log.info("said %s", "\\x1b[2J\\nmore", extra={"session": "s1", "rows": 3})
warnings.warn("a warning")
logging.getLogger("third.party").error("theirs")
print("printed by a library\\rprogress 50 %\\rprogress 100 %", file=sys.stderr)
sys.stderr.write("half ")
sys.stderr.write("a line\\n")

def fails():
    raise ValueError("in a thread")

thread = threading.Thread(target=fails, name="executor_0")
thread.start()
thread.join()

class Odd:
    def __del__(self):
        raise ValueError("unraisable")

Odd()

async def main():
    asyncio.get_running_loop().call_soon(fails)
    await asyncio.sleep(0.01)

asyncio.run(main())
try:
    fails()
except ValueError:
    log.exception("caught")
raise RuntimeError("at the end")
"""


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_every_line_is_an_object_whoever_wrote_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISE], capture_output=True, text=True, timeout=15, check=False
    )
    assert done.returncode == 1
    found = lines(done.stderr)
    assert all(list(one)[:5] == KEYS and one["node"] == "abcd1234" for one in found)
    by_text = {one["message"].split("\n")[0]: one for one in found}
    first = by_text["said \x1b[2J"]
    assert (first["session"], first["rows"], first["level"]) == ("s1", 3, "info")
    assert first["time"][10] == "T"
    assert first["time"].endswith("+00:00")
    assert by_text["theirs"]["logger"] == "third.party"
    assert {"progress 50 %", "progress 100 %", "half a line"} < set(by_text)
    assert by_text["half a line"]["logger"] == "stderr"
    assert any("a warning" in one["message"] for one in found if one["logger"] == "py.warnings")
    broken = [one for one in found if "exception" in one]
    ends = {one["exception"].splitlines()[-1] for one in broken}
    assert {
        "ValueError: in a thread",
        "ValueError: unraisable",
        "RuntimeError: at the end",
    } <= ends
    assert by_text["thread executor_0 failed"]["level"] == "error"
    assert any(one["logger"] == "asyncio" for one in broken)
    assert by_text["caught"] in broken


def test_an_extra_never_takes_the_place_of_a_key() -> None:
    record = logging.makeLogRecord(
        {"msg": "x", "level": "mine", "node": "mine", "odd": {1}, "levelname": "INFO"}
    )
    found = json.loads(JsonLines().format(record))
    assert (found["level"], found["node"], found["odd"]) == ("info", None, "{1}")


def test_the_journal_is_told_how_grave_a_line_is_and_not_the_time() -> None:
    lines = JournalLines("%(message)s")
    for level, code in ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (10, 7)):
        record = logging.makeLogRecord({"msg": "a\nb", "levelno": level})
        assert lines.format(record) == f"<{code}>a\n<{code}>b"


def test_where_stderr_is_the_journal_the_lines_are_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "journal").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        found = os.fstat(file.fileno())
        assert not isinstance(log_lines._formatter("text", to_file=False), JournalLines)
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert isinstance(log_lines._formatter("text", to_file=False), JournalLines)
        assert isinstance(log_lines._formatter("json", to_file=False), JsonLines)
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:1")
        assert not isinstance(log_lines._formatter("text", to_file=False), JournalLines)


def test_a_log_file_is_private_and_all_of_them_together_stay_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(log_lines, "MAX_LOG_BYTES", 1000)
    path = tmp_path / "log"
    path.touch(0o644)
    handler = LogFile(path)
    try:
        for number in range(200):
            handler.emit(logging.makeLogRecord({"msg": f"line {number} " + "x" * 60}))
    finally:
        handler.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log", "log.1", "log.2", "log.3"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert all(0 < file.stat().st_size <= 1000 for file in files)
    assert "line 199" in path.read_text()


def test_only_a_file_is_taken_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(os, "fchmod", lambda _handle, mode: taken.append(mode))
    for path in (Path(os.devnull), tmp_path / "log"):
        LogFile(path).close()
    assert taken == [0o600], "not the mode of a device"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        LogFile(tmp_path / "pipe")


def test_a_log_file_is_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "log").symlink_to(other)
    with pytest.raises(OSError, match="log"):
        LogFile(tmp_path / "log")
    assert other.read_text() == "kept"


@pytest.mark.slow
def test_what_is_printed_goes_along_when_the_file_is_begun_anew(tmp_path: Path) -> None:
    code = (
        "import logging, os, sys\n"
        "from pathlib import Path\n"
        "from diffuse_core.cli import log_lines\n"
        "log_lines.MAX_LOG_BYTES = 500\n"
        f"log_lines.set_logging('info', 'text', 'info', Path({str(tmp_path / 'log')!r}))\n"
        "for number in range(40):\n"
        "    logging.getLogger('diffuse_core').info('line %d ' + 'x' * 40, number)\n"
        "os.write(1, b'from C\\n')\n"
        "print('the last words', file=sys.stderr)\n"
    )
    with (tmp_path / "log").open("ab") as file:
        subprocess.run(
            [sys.executable, "-c", code], stdout=file, stderr=file, timeout=15, check=True
        )
    text = (tmp_path / "log").read_text()
    assert "line 39" in text
    assert text.endswith("from C\nthe last words\n")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_that_ends_a_service_is_in_its_log(form: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diffuse_core", "sentinel", "--listen", "203.0.113.1:1"]
    place = {**os.environ, "DIFFUSE_STATE_DIR": str(tmp_path / "state")}
    command += ["--log-format", form]

    def run(*more: str) -> str:
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=15, check=False, env=place
        )
        assert done.returncode == 2
        return done.stderr

    told = "203.0.113.1 is no address of this machine"
    if form == "json":
        (line,) = lines(run())
        assert (line["level"], line["exit_code"]) == ("error", 2)
        assert told in line["message"]
    else:
        assert run().startswith(f"diffuse: {told}")
    path = tmp_path / "log"
    assert told in run("--log-file", str(path))
    assert told in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
