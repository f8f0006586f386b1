"""`diffuse serve`: what its options mean, and what is refused before anything is made."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.cli import run
from diffuse_core.settings import PUBLIC

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.serving import ServeOptions

Said = tuple[int, str, str]
command = importlib.import_module("diffuse_core.cli.serve")
serving = importlib.import_module("diffuse_core.serving")
KEY = "sk-" + "k" * 30
EVERYWHERE = "0.0.0.0"  # noqa: S104  (nothing is bound)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def say(
    capsys: pytest.CaptureFixture[str], state: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Run the command; its exit code, stdout and stderr."""
    monkeypatch.delenv("DIFFUSE_API_KEY", raising=False)

    def serve(*arguments: str) -> Said:
        code = run(["serve", *arguments, "--state-dir", str(state)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return serve


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeOptions]:
    """What would be served; it says that it is ready, and ends."""
    options: list[ServeOptions] = []

    async def serve_api(given: ServeOptions, _stop: asyncio.Event, ready: Any) -> None:
        options.append(given)
        host = f"[{given.host}]" if ":" in given.host else given.host
        ready(f"{host}:{given.port}")

    monkeypatch.setattr(serving, "serve_api", serve_api)
    return options


def test_the_defaults_are_loopback_with_a_key(
    say: Callable[..., Said], served: list[ServeOptions], state: Path
) -> None:
    code, out, err = say()
    assert code == 0
    assert err == ""
    (options,) = served
    assert (options.host, options.port, options.at_once) == ("127.0.0.1", 8080, 16)
    assert (options.names, options.origins, options.models) == ((), (), ())
    assert not (state / "api.key").exists()
    assert options.key is not None
    key = options.key()
    assert key == (state / "api.key").read_text().strip()
    assert options.network == PUBLIC or not options.network.mdns
    assert options.places.state == state
    assert key not in out
    assert key not in repr(options)
    assert "OPENAI_BASE_URL=http://127.0.0.1:8080/v1" in out
    assert str(state / "api.key") in out
    assert "curl http://127.0.0.1:8080/v1/models" in out


def test_options_arrive(say: Callable[..., Said], served: list[ServeOptions]) -> None:
    code, *_ = say(
        "--port", "0", "--allow-host", "AI.example.org:443", "--allow-host", "b",
        "--allow-origin", "http://LOCALHOST:3000/", "--model", "demo", "--model", "x",
        "--max-concurrent", "3", "--bootstrap", "10.1.2.3",
    )  # fmt: skip
    assert code == 0
    (options,) = served
    assert options.names == ("ai.example.org", "b")
    assert options.origins == ("http://localhost:3000",)
    assert options.models == ("demo", "x")
    assert options.at_once == 3
    assert options.places.given == ("10.1.2.3:9440",)


def test_one_line_of_json_tells_where(
    say: Callable[..., Said], served: list[ServeOptions], state: Path
) -> None:
    _, out, _ = say("--json", "--port", "1234")
    assert len(out.splitlines()) == 1
    assert json.loads(out) == {
        "url": "http://127.0.0.1:1234/v1",
        "address": "127.0.0.1:1234",
        "key": str(state / "api.key"),
    }
    assert served


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.1"])
def test_without_a_key_on_loopback(
    say: Callable[..., Said], served: list[ServeOptions], state: Path, host: str
) -> None:
    code, out, err = say("--no-auth", "--host", host)
    assert (code, err) == (0, "")
    assert served[0].key is None
    assert not (state / "api.key").exists()
    assert "OPENAI_API_KEY=none" in out


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.7", "ai.example.org", ""])
def test_without_a_key_nowhere_else(
    say: Callable[..., Said], served: list[ServeOptions], host: str
) -> None:
    code, out, err = say("--no-auth", "--host", host)
    assert (code, out) == (2, "")
    assert "--no-auth" in err
    assert not served


@pytest.mark.parametrize("host", [EVERYWHERE, "192.168.1.7"])
def test_it_is_said_that_http_is_in_clear(
    say: Callable[..., Said], served: list[ServeOptions], host: str
) -> None:
    code, out, err = say("--host", host)
    assert code == 0
    assert "in clear" in err
    assert "TLS" in err
    assert served[0].host == host
    assert EVERYWHERE not in out


def test_the_key_is_printed_when_asked_for(say: Callable[..., Said], state: Path) -> None:
    first, second = say("--print-key"), say("--print-key")
    assert first == second == (0, (state / "api.key").read_text(), "")


def test_a_key_of_the_environment_wins_over_the_file(
    say: Callable[..., Said],
    served: list[ServeOptions],
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DIFFUSE_API_KEY", KEY)
    _, out, _ = say()
    assert served[0].key is not None
    assert served[0].key() == KEY
    assert KEY not in repr(served[0])
    assert not state.exists()
    assert KEY not in out
    assert say("--print-key")[1] == f"{KEY}\n"


def test_a_key_file_on_the_command_line_wins_over_the_environment(
    say: Callable[..., Said],
    served: list[ServeOptions],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DIFFUSE_API_KEY", "sk-" + "e" * 30)
    path = tmp_path / "given"
    path.write_text(KEY)
    path.chmod(0o600)
    say("--api-key-file", str(path))
    assert served[0].key is not None
    assert served[0].key() == KEY


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--allow-origin", "*"], "--allow-origin"),
        (["--allow-host", "*"], "--allow-host"),
        (["--api-key-file", "/nonexistent/key"], "--api-key-file"),
        (["--port", "70000"], "70000"),
        (["--max-concurrent", "0"], "max-concurrent"),
        (["--metrics", "x"], "--metrics"),
        (["--bootstrap", "a b"], "no address"),
    ],
)
def test_what_cannot_be_is_refused(
    say: Callable[..., Said], served: list[ServeOptions], arguments: list[str], words: str
) -> None:
    code, out, err = say(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert not served


def test_a_poor_key_of_the_environment_is_refused(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_API_KEY", "poor-secret")
    code, _, err = say()
    assert code == 2
    assert "DIFFUSE_API_KEY" in err
    assert "poor-secret" not in err


def test_a_port_in_use_is_named_and_no_key_is_made(say: Callable[..., Said], state: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = say("--port", str(port), "--bootstrap", "127.0.0.1:9")
    assert (code, out) == (2, "")
    assert f"port {port} is in use" in err
    assert not (state / "api.key").exists()


@pytest.mark.slow
def test_its_help_and_its_refusals_load_no_server() -> None:
    code = (
        "import sys\n"
        "from diffuse_core.cli import run\n"
        "try:\n    run(['serve', '--help'])\nexcept SystemExit:\n    pass\n"
        "print({'torch', 'starlette', 'uvicorn', 'h11', 'prometheus_client'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.rstrip().endswith("set()")
