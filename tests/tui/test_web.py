from __future__ import annotations

import importlib.util

import pytest

from diffuse_tui.__main__ import main
from diffuse_tui.web import Door

DOOR = Door(8000, "the key")


@pytest.mark.parametrize(
    ("host", "origin", "given", "admitted"),
    [
        ("127.0.0.1:8000", None, "the key", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", "the key", True),
        # Another name for this address is how a page elsewhere gets at it.
        ("rebound.example:8000", None, "the key", False),
        ("localhost:8000", None, "the key", False),
        ("127.0.0.1:8001", None, "the key", False),
        ("127.0.0.1:8000", "https://elsewhere.example", "the key", False),
        ("127.0.0.1:8000", "http://127.0.0.1:3000", "the key", False),
        ("127.0.0.1:8000", "null", "the key", False),
        # Anybody on this machine reaches the port; only the key opens it.
        ("127.0.0.1:8000", None, "", False),
        ("127.0.0.1:8000", None, "another", False),
        ("127.0.0.1:8000", None, "schlüssel", False),
    ],
)
def test_only_pages_of_this_server_with_its_key_may_drive_the_app(
    host: str, origin: str | None, given: str, admitted: bool
) -> None:
    assert DOOR.admits(host, origin, given) == admitted


def test_the_address_is_on_this_machine_only() -> None:
    assert DOOR.url == "http://127.0.0.1:8000/?key=the key"


@pytest.mark.skipif(
    importlib.util.find_spec("textual_serve") is not None, reason="the extra is installed"
)
def test_without_the_extra_the_way_to_get_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["web", "--port", "8123"])
    assert left.value.code == 2
    assert "pip install 'diffuse-tui[web]'" in capsys.readouterr().err


def test_a_demo_is_not_started_by_every_tab(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["web", "demo"])
    assert left.value.code == 2
    assert "every tab would start a demo" in capsys.readouterr().err
