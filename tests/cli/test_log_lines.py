"""Log lines: one JSON object each, whoever writes them; files that stay small."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.cli import cli, log_lines, run
from diffuse_core.cli.early_log import wants_json
from diffuse_core.cli.log_lines import JournalLines, JsonLines, LogFile

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = ["time", "level", "logger", "message", "node"]
NOISE = """
import asyncio, logging, sys, threading, warnings
from diffuse_core.cli.log_lines import name_node, set_logging, tell
set_logging("debug", "json", no_data=True)
name_node("abcd1234")
log = logging.getLogger("diffuse_core.test")
log.info("said %s", "\\x1b[2J\\nmore", extra={"session": "s1", "rows": 3})
warnings.warn("a warning")
logging.getLogger("third.party").error("theirs")
print("printed by a library\\rprogress 50 %\\rprogress 100 %", file=sys.stderr)
sys.stderr.write("half ")
sys.stderr.write("a line\\n")
print("on stdout")
tell("told in any case", pieces=[1, 2], node="not this")
tell("a warning of ours", err=True, level=logging.WARNING)
sys.stdout.write("without an end")

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


@pytest.fixture
def restored() -> Iterator[None]:
    """Streams, hooks and log handlers are afterwards what they were."""
    names = ("stdout", "stderr", "excepthook", "unraisablehook")
    kept = {name: getattr(sys, name) for name in names}
    hook, root = threading.excepthook, logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, logging.getLogger("diffuse_core").level
    yield
    for name, value in kept.items():
        setattr(sys, name, value)
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("diffuse_core").setLevel(ours)
    logging.captureWarnings(capture=False)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_line_is_an_object_whoever_wrote_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
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
    assert by_text["on stdout"]["logger"] == "stdout"
    assert by_text["without an end"] is found[-1]
    assert (by_text["told in any case"]["level"], by_text["told in any case"]["pieces"]) == (
        *("info", [1, 2]),
    )
    assert by_text["a warning of ours"]["level"] == "warning"
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
@pytest.mark.timeout(120)
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
            [sys.executable, "-c", code], stdout=file, stderr=file, timeout=60, check=True
        )
    text = (tmp_path / "log").read_text()
    assert "line 39" in text
    assert text.endswith("from C\nthe last words\n")


def spoken(command: list[str], place: Path, form: str) -> list[str]:
    """Every line, of stdout and stderr, that a service writes until it is ended."""
    given = ["--log-format", form, "--log-level", "error", "--state-dir", str(place)]
    with subprocess.Popen(
        [sys.executable, "-m", "diffuse_core", *command, *given, "--no-mdns"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        # No more than this, whatever it waits for: then its lines end.
        limit = threading.Timer(50.0, process.kill)
        limit.start()
        try:
            told = [process.stdout.readline()]
            process.terminate()
            return told + process.stdout.readlines()
        finally:
            limit.cancel()
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", ["sentinel --listen 127.0.0.1:0", "serve --port 0"])
def test_what_a_service_says_of_itself_is_a_line_as_all_others(
    command: str, tmp_path: Path
) -> None:
    spoken_as_text = spoken(command.split(), tmp_path / "text", "text")
    found = lines("".join(spoken(command.split(), tmp_path / "json", "json")))
    first = found[0]
    assert list(first)[:5] == KEYS
    assert (first["level"], first["logger"]) == ("info", "diffuse_core.cli")
    assert first["address"].startswith("127.0.0.1:")
    if "sentinel" in command:
        assert (first["role"], first["id"][:8]) == ("sentinel", first["node"])
        assert first["message"] == f"sentinel {first['id']} listens on {first['address']}"
        assert found[1]["command"].endswith(f"--bootstrap {first['address']}")
        assert spoken_as_text[0].startswith("sentinel ")
        assert spoken_as_text[1].startswith("others join with: diffuse host ")
    else:
        assert first["url"] == f"http://{first['address']}/v1"
        assert first["key"] == str(tmp_path / "json" / "api.key")
        assert spoken_as_text[0].startswith("serving OpenAI's API at http://127.0.0.1:")
        assert spoken_as_text[-1] == f"the key is in {tmp_path / 'text' / 'api.key'}\n"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_data_that_was_asked_for_stays_data(tmp_path: Path) -> None:
    (told,) = spoken(["serve", "--port", "0", "--json"], tmp_path, "json")
    assert set(json.loads(told)) == {"url", "address", "key"}


WRONG = (
    ("host --model demo --nonsense", "--nonsense"),
    ("host", "--model"),
    ("sentinel --listen 203.0.113.1:1", "203.0.113.1"),
    ("demo --hosts 99", "--hosts"),
    ("demo --ask x --bootstrap 127.0.0.1:1", "leave out --bootstrap"),
    ("serve --log-file /dev/null/x", "--log-file"),
)


@pytest.mark.parametrize(("command", "told"), WRONG)
@pytest.mark.parametrize("by", ["flag", "joined", "variable", "file"])
def test_what_is_wrong_at_the_start_is_told_in_the_same_form(
    command: str,
    told: str,
    by: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    restored: None,
) -> None:
    monkeypatch.setenv("DIFFUSE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("DIFFUSE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "config.toml").touch()
    flags = {"flag": ["--log-format", "json"], "joined": ["--log-format=json"]}.get(by, [])
    if by == "variable":
        monkeypatch.setenv("DIFFUSE_LOG_FORMAT", "json")
    if by == "file":
        (tmp_path / "config.toml").write_text('log-format = "json"\n')
    assert run([*command.split(), *flags]) == 2
    captured = capsys.readouterr()
    (line,) = lines(captured.err)
    assert (captured.out, line["level"], line["exit_code"]) == ("", "error", 2)
    assert told in line["message"]


def test_only_commands_that_have_a_log_are_asked_for_its_form(tmp_path: Path) -> None:
    config = {"DIFFUSE_CONFIG": str(tmp_path / "config.toml")}
    place = {"DIFFUSE_LOG_FORMAT": "json", **config}
    assert wants_json(cli, ["host"], place)
    assert wants_json(cli, ["host"], {"DIFFUSE_HOST_LOG_FORMAT": "json"})
    assert not wants_json(cli, ["host"], {"DIFFUSE_SERVE_LOG_FORMAT": "json"})
    assert not wants_json(cli, ["host", "--log-format", "text"], place)
    assert not wants_json(cli, ["host", "--log-format"], {})
    for words in ([], ["config", "show"], ["nonsense"], ["--help"], ["help", "host"]):
        assert not wants_json(cli, words, place)
    (tmp_path / "config.toml").write_text("nonsense")
    assert not wants_json(cli, ["host"], config)
    assert wants_json(cli, ["host"], place), "whatever the file is"


def test_what_was_taken_is_given_back(restored: None) -> None:
    before = sys.stderr, sys.stdout
    log_lines.set_logging(None, "json", no_data=True)
    assert sys.stderr is not before[0]
    assert sys.excepthook is not sys.__excepthook__
    log_lines.set_logging(None, "text")
    assert (sys.stderr, sys.stdout) == before
    assert sys.excepthook is sys.__excepthook__


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_that_ends_a_service_is_in_its_log(form: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diffuse_core", "sentinel", "--listen", "203.0.113.1:1"]
    place = {**os.environ, "DIFFUSE_STATE_DIR": str(tmp_path / "state")}
    command += ["--log-format", form]

    def run(*more: str) -> str:
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=60, check=False, env=place
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
