"""A model on the hub is the model that its files are, and only what is needed travels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer, models

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.adapters.models.hub_client import PACE
from diffuse_core.adapters.models.hub_name import HubName, parse_hub_name
from diffuse_core.adapters.models.hub_source import HubSource, open_hub
from diffuse_core.errors import ModelUnknown, ModelUnusable
from tests.adapters.models.hub_server import COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.adapters.models.hub_server import Hub

REPO = "org/tiny"
FILE = "model.safetensors"
# Large enough that a layer weighs much more than what any source reads of all tensors.
BIG = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}
QUICK = replace(PACE, waits=(0.0,) * 3, stall=0.3)


class _CancelledError(Exception):
    pass


def silent(_: float) -> None:
    pass


@pytest.fixture
def directory(save: Callable) -> Path:
    path = save(name="big", **BIG)
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    (path / "tokenizer.json").write_text(tokenizer.to_str())
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return path


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path) -> Callable:
    """Open a model as a new process does that has the same cache."""

    def make(text: str = REPO, cache: str = "cache", **settings: object) -> HubSource:
        name = parse_hub_name(text)
        assert isinstance(name, HubName)
        options = {"endpoint": hub.endpoint, "pace": QUICK, "progress": silent, **settings}
        return open_hub(name, tmp_path / cache, **options)

    return make


def layer(source: HubSource, number: int) -> list[str]:
    return [name for name in source.names if name.startswith(f"model.layers.{number}.")]


def length(asked: str) -> int:
    first, last = asked.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def data_of(source: DirectorySource, name: str) -> bytes:
    return b"".join(bytes(piece.data) for piece in source.pieces(name))


def weight(source: DirectorySource, names: list[str]) -> int:
    return sum(len(data_of(source, name)) for name in names)


def test_it_is_the_model_that_its_files_are(hub: Hub, fetch: Callable, directory: Path) -> None:
    hub.add(REPO, directory)
    told: list[float] = []
    source = fetch(progress=told.append)
    local = DirectorySource(directory)
    assert (source.id, source.commit) == (REPO, COMMIT)
    assert source.content == local.content
    assert source.bundle() == local.bundle()
    assert source.config() == local.config()
    assert source.names == local.names
    assert source.shape("bf16") == local.shape("bf16")
    assert told == sorted(told)
    assert told[-1] == 1.0
    source.fetch(source.names, silent)
    for name in local.names:
        assert data_of(source, name) == data_of(local, name), name
    assert source._mirror._partial(FILE).proven


def test_models_in_several_files_are_the_same_model(
    hub: Hub, fetch: Callable, save: Callable, directory: Path
) -> None:
    hub.add(REPO, save(name="several", shard="1MB", **BIG))
    files = [name for name in hub.repos[REPO].files if name.endswith(".safetensors")]
    assert len(files) > 8
    source = fetch()
    local = DirectorySource(directory)
    assert source.content == local.content
    hub.forget()
    names = layer(source, 1)
    source.fetch(names, silent)
    asked = {name for name in files if hub.asked(name)}
    assert 0 < len(asked) < len(files)
    assert all(data_of(source, name) == data_of(local, name) for name in names)


def test_a_slice_brings_its_own_bytes_and_hardly_any_more(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch()
    opened = hub.weights_sent()
    own = weight(DirectorySource(directory), layer(source, 1))
    assert opened < own / 10
    hub.forget()
    source.fetch(layer(source, 1), silent)
    assert hub.weights_sent() <= own
    assert opened + hub.weights_sent() > own * 0.99
    # Again, and by another host on this machine: nothing travels.
    hub.forget()
    fetch().fetch(layer(source, 1), silent)
    assert hub.weights_sent() == 0
    assert not hub.asked("config.json")
    # Another slice beside it brings only its own.
    source.fetch([*layer(source, 1), *layer(source, 2)], silent)
    assert hub.weights_sent() <= weight(DirectorySource(directory), layer(source, 2))
    used = (source._mirror.directory / FILE).stat()
    assert used.st_blocks * 512 < used.st_size


def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch()
    source.fetch(source.names, silent)
    assert {seen.authorization for seen in hub.seen if seen.where == "hub"} == {"Bearer hf_secret"}
    assert {seen.authorization for seen in hub.seen if seen.where == "storage"} == {None}
    assert all(seen.range for seen in hub.seen if seen.where == "storage")


def test_long_ranges_come_in_several_requests_with_progress(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch(pace=replace(QUICK, part=2**19))
    hub.forget()
    told: list[float] = []
    source.fetch(source.names, told.append)
    sizes = [length(asked) for asked in hub.asked(FILE) if asked]
    assert len(sizes) > 10
    assert max(sizes) == 2**19
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(set(told)) > 50


def test_a_fetch_that_is_cancelled_goes_on_where_it_was(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    small_steps = replace(QUICK, part=2**18, gap=2**10)
    source = fetch(pace=small_steps)
    hub.forget()

    def cancel(fraction: float) -> None:
        if fraction > 0.5:
            raise _CancelledError

    with pytest.raises(_CancelledError):
        source.fetch(source.names, cancel)
    total = (directory / FILE).stat().st_size
    kept = bytes_here(source, total)
    assert kept > total * 0.5
    again = fetch(pace=small_steps)
    # Tells what is asked from now on from what was still on its way.
    hub.signature = "s2"
    told: list[float] = []
    again.fetch(again.names, told.append)
    asked = [s.range for s in hub.seen if s.path.endswith("s2") and s.range]
    # Samples that were here already may come again with what is between them.
    assert sum(map(length, asked)) <= total - kept + 10_000
    assert told[0] > 0.5
    local = DirectorySource(directory)
    assert all(data_of(again, name) == data_of(local, name) for name in local.names)


KILLED = """
import sys
from pathlib import Path
from diffuse_core.adapters.models import hub_partial
from diffuse_core.adapters.models.hub_name import parse_hub_name
from diffuse_core.adapters.models.hub_source import open_hub

hub_partial.SAVE_BYTES = 2**18
source = open_hub(parse_hub_name("org/tiny"), Path(sys.argv[1]), lambda _: None)

def halt(fraction):
    if fraction > 0.5:
        print("half", flush=True)
        sys.stdin.read()

source.fetch(source.names, halt)
"""


def test_a_fetch_that_is_killed_loses_little(
    hub: Hub, fetch: Callable, directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, directory)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "HF_ENDPOINT": hub.endpoint},
    ) as victim:
        assert victim.stdout.readline() == b"half\n"
        victim.kill()
    source = fetch()
    total = (directory / FILE).stat().st_size
    assert bytes_here(source, total) > 0.5 * total - 2**19
    local = DirectorySource(directory)
    part = source._mirror._partial(FILE)
    content = (directory / FILE).read_bytes()
    here = bytearray((source._mirror.directory / FILE).read_bytes())
    for start, end in part.missing([(0, total)]):
        here[start:end] = content[start:end]
    assert here == content
    source.fetch(source.names, silent)
    assert all(data_of(source, name) == data_of(local, name) for name in local.names)


def bytes_here(source: HubSource, total: int) -> int:
    lacking = source._mirror._partial(FILE).missing([(0, total)])
    return total - sum(end - start for start, end in lacking)


def test_a_torn_journal_costs_time_and_nothing_else(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch()
    source.fetch(layer(source, 1), silent)
    journal = source._mirror.directory / f"{FILE}.parts"
    journal.write_bytes(journal.read_bytes()[:-9])
    again = fetch()
    assert again.content == DirectorySource(directory).content
    hub.forget()
    again.fetch(layer(again, 1), silent)
    assert hub.weights_sent() > 0
    local = DirectorySource(directory)
    assert all(data_of(again, name) == data_of(local, name) for name in layer(again, 1))


def test_hosts_on_one_machine_take_turns(hub: Hub, fetch: Callable, directory: Path) -> None:
    hub.add(REPO, directory)
    source = fetch()
    script = (
        "import sys\n"
        "from diffuse_core.adapters.models.file_lock import locked\n"
        "from pathlib import Path\n"
        "with locked(Path(sys.argv[1]), print):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    hub.forget()
    with subprocess.Popen(
        [sys.executable, "-c", script, str(source._mirror.directory / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        waited: list[float] = []

        def tell(fraction: float) -> None:
            if not waited:
                assert not hub.seen
                other.stdin.close()
            waited.append(fraction)

        source.fetch(layer(source, 0), tell)
    assert waited[0] == 0.0
    assert hub.weights_sent() > 0


def test_waiting_for_another_host_can_be_cancelled(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch()
    from diffuse_core.adapters.models.file_lock import locked

    def cancel(_fraction: float) -> None:
        raise _CancelledError

    with locked(source._mirror.directory / "lock", silent), pytest.raises(_CancelledError):
        source.fetch(source.names, cancel)


def test_a_revision_is_pinned_to_its_commit(hub: Hub, fetch: Callable, directory: Path) -> None:
    repo = hub.add(REPO, directory, revisions=("main", "v1", "refs/pr/1"))
    assert fetch("org/tiny@v1").commit == COMMIT
    assert fetch("org/tiny@refs/pr/1").commit == COMMIT
    source = fetch()
    moved = "d" * 40
    config = json.loads(repo.files["config.json"])
    changed = json.dumps({**config, "rms_norm_eps": 1e-3}).encode()
    hub.add(REPO, {**repo.files, "config.json": changed}, commit=moved)
    hub.forget()
    newer = fetch()
    assert newer.commit == moved
    assert newer.content != source.content
    asked = {s.path.split("/resolve/")[1].split("/")[0] for s in hub.seen if "/resolve/" in s.path}
    assert asked == {moved}
    # What was opened before stays what it was.
    assert source.commit == COMMIT
    assert source.content == DirectorySource(directory).content


def test_a_commit_that_is_here_needs_no_hub(hub: Hub, fetch: Callable, directory: Path) -> None:
    hub.add(REPO, directory)
    first = fetch(f"{REPO}@{COMMIT}")
    hub.forget()
    again = fetch(f"{REPO}@{COMMIT}")
    assert again.content == first.content
    assert again.bundle()
    assert hub.seen == []


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_without_a_hub_the_last_commit_counts_as_far_as_it_is_here(
    hub: Hub,
    fetch: Callable,
    directory: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub.add(REPO, directory)
    first = fetch()
    first.fetch(layer(first, 1), silent)
    endpoint = hub.endpoint
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        told = "HF_HUB_OFFLINE forbids"
    else:
        endpoint = "http://127.0.0.1:9"
        told = "cannot be fetched from http://127.0.0.1:9 .*check the connection"
    again = fetch(endpoint=endpoint)
    assert again.content == first.content
    assert f"going on with commit {COMMIT}" in caplog.text
    again.fetch(layer(again, 1), silent)
    with pytest.raises(ModelUnknown, match=told):
        again.fetch(layer(again, 2), silent)
    with pytest.raises(ModelUnknown, match=told):
        fetch("org/other", endpoint=endpoint)


def test_the_hub_says_how_a_model_is_called(hub: Hub, fetch: Callable, directory: Path) -> None:
    hub.add("tiny", directory, canonical=REPO)
    assert fetch("tiny").id == REPO


def test_a_whole_file_is_checked_against_its_sha256(
    hub: Hub, fetch: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = fetch()
    at = next(source.stored(layer(source, 2)[:1])).offset + 5000
    with (source._mirror.directory / FILE).open("r+b") as file:
        file.seek(at)
        file.write(bytes([(directory / FILE).read_bytes()[at] ^ 1]))
    journal = source._mirror.directory / f"{FILE}.parts"
    state = json.loads(journal.read_text())
    state["ranges"] = sorted([*state["ranges"], [at, at + 1]])
    journal.write_text(json.dumps(state))
    with pytest.raises(ModelUnusable, match=r"arrived damaged .*SHA-256.* deleted; try again"):
        without_gaps(source).fetch(source.names, silent)
    assert not journal.exists()


def without_gaps(source: HubSource) -> HubSource:
    """So that no byte which counts as here is fetched with its neighbours."""
    client = source._mirror._client
    client.pace = replace(client.pace, gap=0)
    return source


def test_there_must_be_room(hub: Hub, fetch: Callable, directory: Path) -> None:
    hub.add(REPO, directory)
    free = 2**33
    source = fetch(free=lambda _path: free)
    hub.forget()
    free = 2**22 + 1000
    with pytest.raises(
        ModelUnusable, match=r"needs 9\.\d MiB more in \S+, where 4\.0 MiB are free; make room, or"
    ):
        source.fetch(source.names, silent)
    assert hub.weights_sent() == 0


def test_a_place_that_cannot_be_written_is_named(
    hub: Hub, fetch: Callable, directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, directory)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelUnusable, match=r"cannot be stored in \S+: Not a directory; mend"):
        fetch(cache="file")


def test_what_the_cache_cannot_keep_is_told(
    hub: Hub, fetch: Callable, directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, directory)
    (tmp_path / "cache" / "org--tiny" / "main.json").mkdir(parents=True)
    with pytest.raises(ModelUnusable, match=r"cannot be kept in \S+: Is a directory; mend that"):
        fetch()


def test_looking_does_not_load_torch(hub: Hub, directory: Path, tmp_path: Path) -> None:
    hub.add(REPO, directory)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from diffuse_core.adapters.models.hub_name import parse_hub_name\n"
        "from diffuse_core.adapters.models.hub_source import open_hub\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "source = open_hub(parse_hub_name('org/tiny'), Path(sys.argv[1]), lambda _: None)\n"
        "source.content, source.bundle()\n"
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={**os.environ, "HF_ENDPOINT": hub.endpoint},
    )
    assert done.stdout.strip() == "set()", done.stderr
    assert {seen.authorization for seen in hub.seen if seen.where == "hub"} == {"Bearer hf_secret"}


UNREADABLE = {
    "its weights are pickles": {"config.json": b"{}", "pytorch_model.bin": b"x"},
    r"GGUF files only; download one \(`hf download org/tiny m.gguf`\)": {"m.gguf": b"GGUF"},
    r"no safetensors; it is no": {"README.md": b"hello"},
    r"safetensors, but no config\.json": {"model.safetensors": b"x"},
    r"safetensors, but no model\.safetensors\.index\.json": {
        "config.json": b"{}",
        "a.safetensors": b"x",
        "b.safetensors": b"x",
    },
    r"malformed": {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "../../evil.safetensors"}}',
    },
    "lacks a file": {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}',
    },
    r"^org/tiny of the hub .*: config\.json: the architecture None": {
        "config.json": b"{}",
        "model.safetensors": b"x" * 100,
    },
    r"config\.json has 16777217 bytes": {
        "config.json": b" " * (2**24 + 1),
        "model.safetensors": b"x",
    },
}


@pytest.mark.parametrize("message", UNREADABLE)
def test_what_cannot_be_read_is_refused(hub: Hub, fetch: Callable, message: str) -> None:
    hub.add(REPO, UNREADABLE[message])
    with pytest.raises(ModelUnknown, match=message) as caught:
        fetch()
    assert REPO in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff" * 100, r"model\.safetensors is no safetensors file"),
        (b"", r"model\.safetensors is no safetensors file"),
        (b"\0\0\1\0\0\0\0\0{}", r"model\.safetensors is truncated: its header"),
        (b"\0\0\0\0\1\0\0\0{}", "no safetensors file"),
    ],
)
def test_weights_that_are_none_are_refused(
    hub: Hub, fetch: Callable, directory: Path, content: bytes, message: str
) -> None:
    hub.add(REPO, directory).files[FILE] = content
    with pytest.raises(ModelUnusable, match=message):
        fetch()


def test_code_of_its_own_is_never_run(hub: Hub, fetch: Callable, directory: Path) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"x": "evil.Evil"}}))
    hub.add(REPO, directory)
    with pytest.raises(ModelUnusable, match=r"org/tiny of the hub .* \(auto_map\)"):
        fetch()
