"""Completing a path from what is on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.path_completion import completions

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_directories_and_models_are_given_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("m1.gguf", "m2.GGUF", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "mloop").symlink_to("mloop")
    at = f"{tmp_path}/"
    assert completions(at) == (f"{at}m1.gguf", f"{at}m2.GGUF", f"{at}models/")
    assert completions(f"{at}mo") == (f"{at}models/",)
    assert completions(f"{at}.h") == (f"{at}.hidden/",)
    assert completions(f"{at}nowhere/x") == ()
    assert completions(f"{at}\0/x") == ()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completions("~/mo") == ("~/models/",)
    assert completions("~nobody-of-that-name/x") == ()
    monkeypatch.chdir(tmp_path)
    assert completions("./mo") == ("./models/",)
    assert completions("mo") == ("models/",)


def test_a_directory_of_very_many_files_gives_a_few(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:03}.gguf").touch()
    assert len(completions(f"{tmp_path}/")) == 50
