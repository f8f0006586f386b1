from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.archive.paths import matching_paths
from diffuse_tui.hosting_desk import MODEL_FILES

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_paths_begin_as_they_are_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("notes.txt", "other", ".hidden", "no\x1b[2J"):
        (tmp_path / name).touch()
    assert matching_paths(f"{tmp_path}/no") == (f"{tmp_path}/notes.txt", f"{tmp_path}/notes/")
    assert f"{tmp_path}/.hidden" not in matching_paths(f"{tmp_path}/")
    assert matching_paths(f"{tmp_path}/.h") == (f"{tmp_path}/.hidden",)
    assert matching_paths(f"{tmp_path}/", limit=1) == (f"{tmp_path}/notes.txt",)
    monkeypatch.chdir(tmp_path)
    assert matching_paths("ot") == ("other",)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert matching_paths("~/ot") == ("~/other",)


def test_models_are_told_from_other_files_and_a_link_to_itself_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(typed: str) -> tuple[str, ...]:
        return matching_paths(typed, endings=MODEL_FILES)

    (tmp_path / "models").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("m1.gguf", "m2.GGUF", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "mloop").symlink_to("mloop")
    at = f"{tmp_path}/"
    assert completed(at) == (f"{at}m1.gguf", f"{at}m2.GGUF", f"{at}models/")
    assert matching_paths(f"{at}ml") == (f"{at}mloop",)
    assert completed(f"{at}.h") == (f"{at}.hidden/",)
    monkeypatch.chdir(tmp_path)
    assert completed("./mo") == ("./models/",)
    for number in range(60):
        (tmp_path / f"{number:03}.gguf").touch()
    assert len(completed(at)) == 50


def test_what_cannot_be_read_has_no_paths(tmp_path: Path) -> None:
    for odd in (f"{tmp_path}/none/x", "\0/x", f"{tmp_path}/" + "y/" * 5_000, "~nobody-here/x"):
        assert matching_paths(odd) == ()
