"""Whatever a file of settings holds, it is taken or refused in words, never with a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis import given, settings

from diffuse_core.cli import cli
from diffuse_core.cli.config_rows import check_rows
from diffuse_core.cli.layers import known_settings
from diffuse_core.config_file import ConfigFile, read_config
from diffuse_core.configuration import Sources, problems
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = known_settings(cli)
KEYS = st.sampled_from(
    [*sorted(KNOWN[()]), "host", "identity", "show", "app", "demo", "nonsense", "log_level"]
)
PLAIN = st.integers() | st.booleans() | st.floats() | st.text(max_size=8) | st.dates() | st.none()
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | st.text("[]=\"'.#\n abn1{}\\", max_size=60).map(str.encode))
@settings(max_examples=100, deadline=None, database=None)
def test_any_bytes(tmp_path_factory: Any, data: bytes) -> None:
    path: Path = tmp_path_factory.mktemp("settings") / "config.toml"
    path.touch(0o600)
    path.write_bytes(data)
    try:
        found = read_config({"DIFFUSE_CONFIG": str(path)})
    except UsageError:
        return
    assert all(isinstance(text, str) for text in problems(found, KNOWN))


@given(st.dictionaries(KEYS, VALUES, max_size=6))
@settings(max_examples=30, deadline=None, database=None)
def test_any_tables(tmp_path_factory: Any, content: dict[str, Any]) -> None:
    """What is found to be good can be used, but for what the option itself refuses."""
    file = ConfigFile(tmp_path_factory.getbasetemp() / "config.toml", content, there=True)
    for text in problems(file, KNOWN):
        assert "config.toml" in text
    sources = Sources({}, file)
    assert all(isinstance(text, str) for text in check_rows(cli, sources))


@given(st.dictionaries(KEYS, st.text(max_size=12), max_size=6))
@settings(max_examples=30, deadline=None, database=None)
def test_any_variables(tmp_path_factory: Any, given_texts: dict[str, str]) -> None:
    environ = {
        f"DIFFUSE_{key.upper().replace('-', '_')}": text for key, text in given_texts.items()
    }
    sources = Sources(environ, ConfigFile(tmp_path_factory.getbasetemp()))
    assert all(isinstance(text, str) for text in check_rows(cli, sources))
