"""Of a model on the hub only what is needed travels, once, whatever breaks it off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.adapters.models.file_lock import locked
from diffuse_core.errors import ModelUnusable
from tests.adapters.models.hub_model import (
    FILE,
    QUICK,
    REPO,
    data_of,
    layer,
    length,
    silent,
    weight,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.adapters.models.hub_source import HubSource
    from tests.adapters.models.hub_server import Hub


class _CancelledError(Exception):
    pass


def test_a_slice_brings_its_own_bytes_and_hardly_any_more(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    source = fetch()
    opened = hub.weights_sent()
    own = weight(DirectorySource(hub_directory), layer(source, 1))
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
    assert hub.weights_sent() <= weight(DirectorySource(hub_directory), layer(source, 2))
    used = (source._mirror.directory / FILE).stat()
    assert used.st_blocks * 512 < used.st_size


def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    source = fetch()
    source.fetch(source.names, silent)
    assert {seen.authorization for seen in hub.seen if seen.where == "hub"} == {"Bearer hf_secret"}
    assert {seen.authorization for seen in hub.seen if seen.where == "storage"} == {None}
    assert all(seen.range for seen in hub.seen if seen.where == "storage")


def test_long_ranges_come_in_several_requests_with_progress(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
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
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    small_steps = replace(QUICK, part=2**18, gap=2**10)
    source = fetch(pace=small_steps)
    hub.forget()

    def cancel(fraction: float) -> None:
        if fraction > 0.5:
            raise _CancelledError

    with pytest.raises(_CancelledError):
        source.fetch(source.names, cancel)
    total = (hub_directory / FILE).stat().st_size
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
    local = DirectorySource(hub_directory)
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
    hub: Hub, fetch: Callable, hub_directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, hub_directory)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "HF_ENDPOINT": hub.endpoint},
    ) as victim:
        assert victim.stdout.readline() == b"half\n"
        victim.kill()
    source = fetch()
    total = (hub_directory / FILE).stat().st_size
    assert bytes_here(source, total) > 0.5 * total - 2**19
    local = DirectorySource(hub_directory)
    part = source._mirror._partial(FILE)
    content = (hub_directory / FILE).read_bytes()
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
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    source = fetch()
    source.fetch(layer(source, 1), silent)
    journal = source._mirror.directory / f"{FILE}.parts"
    journal.write_bytes(journal.read_bytes()[:-9])
    again = fetch()
    assert again.content == DirectorySource(hub_directory).content
    hub.forget()
    again.fetch(layer(again, 1), silent)
    assert hub.weights_sent() > 0
    local = DirectorySource(hub_directory)
    assert all(data_of(again, name) == data_of(local, name) for name in layer(again, 1))


def test_hosts_on_one_machine_take_turns(hub: Hub, fetch: Callable, hub_directory: Path) -> None:
    hub.add(REPO, hub_directory)
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
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    source = fetch()

    def cancel(_fraction: float) -> None:
        raise _CancelledError

    with locked(source._mirror.directory / "lock", silent), pytest.raises(_CancelledError):
        source.fetch(source.names, cancel)


def test_a_whole_file_is_checked_against_its_sha256(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    source = fetch()
    at = next(source.stored(layer(source, 2)[:1])).offset + 5000
    with (source._mirror.directory / FILE).open("r+b") as file:
        file.seek(at)
        file.write(bytes([(hub_directory / FILE).read_bytes()[at] ^ 1]))
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


def test_there_must_be_room(hub: Hub, fetch: Callable, hub_directory: Path) -> None:
    hub.add(REPO, hub_directory)
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
    hub: Hub, fetch: Callable, hub_directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, hub_directory)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelUnusable, match=r"cannot be stored in \S+: Not a directory; mend"):
        fetch(cache="file")


def test_what_the_cache_cannot_keep_is_told(
    hub: Hub, fetch: Callable, hub_directory: Path, tmp_path: Path
) -> None:
    hub.add(REPO, hub_directory)
    (tmp_path / "cache" / "org--tiny" / "main.json").mkdir(parents=True)
    with pytest.raises(ModelUnusable, match=r"cannot be kept in \S+: Is a directory; mend that"):
        fetch()
