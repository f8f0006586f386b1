"""A small model hub on loopback, with a second port as the storage that it redirects to.

It speaks the HTTP that `huggingface_hub` uses: the model API, HEAD and GET of files with the hub's
own headers, redirects for large files, byte ranges, error codes. And it can misbehave.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "c0ffee" + "0" * 34
PIECE = 4096


@dataclass
class Fault:
    """What goes wrong with one answer of the storage, or of the hub."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drop_after: int | None = None
    """Close the connection after so many bytes of the body."""
    stall_after: int | None = None
    """Send nothing more after so many bytes of the body."""
    ignore_range: bool = False
    fewer: int = 0
    """Send so many bytes less than asked, and say so."""
    extra: int = 0
    """Send so many bytes more than asked."""


@dataclass
class Repo:
    """Files by name, at one commit; `refusal` is what everybody gets instead."""

    files: dict[str, bytes]
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    refusal: Fault | None = None
    canonical: str | None = None


@dataclass(frozen=True)
class Seen:
    """A request."""

    where: str
    method: str
    path: str
    range: str | None
    authorization: str | None


class Hub:
    """The state of both ports, which tests read and change."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.seen: list[Seen] = []
        self.sent: Counter[str] = Counter()
        self.faults: deque[Fault] = deque()
        """Taken one by one by answers of the storage."""
        self.hub_faults: deque[Fault] = deque()
        """Taken one by one by answers of the hub."""
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.endpoint = ""
        self.storage = ""
        self.signature = "s1"
        """What links into the storage carry now; older ones have expired."""

    def add(self, repo: str, source: Path | dict[str, bytes], **settings: object) -> Repo:
        """Publish a directory, or files given by name."""
        if not isinstance(source, dict):
            source = {path.name: path.read_bytes() for path in sorted(source.iterdir())}
        self.repos[repo] = Repo(source, **settings)
        return self.repos[repo]

    def weights_sent(self) -> int:
        """Bytes of bodies that the storage sent."""
        return sum(size for name, size in self.sent.items() if name.endswith(".safetensors"))

    def asked(self, name: str, method: str = "GET") -> list[str | None]:
        """The ranges of requests for a file."""
        return [
            s.range
            for s in self.seen
            if s.method == method and urlsplit(s.path).path.endswith("/" + name)
        ]

    def forget(self) -> None:
        """Start counting anew."""
        self.seen.clear()
        self.sent.clear()


@functools.cache
def tag_of(name: str, data: bytes) -> str:
    if name.endswith(".safetensors"):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324  (as git does)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub
    where = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        headers = self.headers
        with self.hub.lock:
            self.hub.seen.append(
                Seen(
                    self.where,
                    self.command,
                    unquote(self.path),
                    headers.get("Range"),
                    headers.get("Authorization"),
                )
            )
        self.route(unquote(urlsplit(self.path).path))

    def route(self, path: str) -> None:
        raise NotImplementedError

    def reply(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, fault: Fault) -> None:
        self.reply(fault.status, fault.headers, fault.body)

    def next_fault(self, faults: deque[Fault]) -> Fault:
        with self.hub.lock:
            return faults.popleft() if faults else Fault()

    def send_file(self, name: str, data: bytes, headers: dict[str, str], fault: Fault) -> None:
        asked = None if fault.ignore_range else self.headers.get("Range")
        start, end = 0, len(data)
        if asked is not None:
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
            assert match is not None, asked
            start, end = int(match[1]), min(int(match[2]) + 1, len(data))
            if start >= len(data):
                self.reply(416, {"Content-Range": f"bytes */{len(data)}"})
                return
        end = min(max(end - fault.fewer, start + 1) + fault.extra, len(data))
        self.send_response(200 if asked is None else 206)
        if asked is not None:
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}", **headers}
        for key, value in {
            "Content-Length": str(end - start),
            "Accept-Ranges": "bytes",
            **headers,
            **fault.headers,
        }.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(name, data[start:end], fault)

    def _send_body(self, name: str, body: bytes, fault: Fault) -> None:
        stops = [n for n in (fault.drop_after, fault.stall_after) if n is not None]
        body = body[: min(stops, default=len(body))]
        for at in range(0, len(body), PIECE):
            piece = body[at : at + PIECE]
            # Counted first, so that who has the bytes sees them counted.
            with self.hub.lock:
                self.hub.sent[name] += len(piece)
            self.wfile.write(piece)
        self.wfile.flush()
        if fault.stall_after is not None:
            self.hub.closing.wait()
        if stops:
            self.close_connection = True


class _HubHandler(_Handler):
    where = "hub"

    def route(self, path: str) -> None:
        fault = self.next_fault(self.hub.hub_faults)
        if fault.status:
            self.refuse(fault)
            return
        api = re.fullmatch(r"/api/models/(?P<repo>.+?)(?:/revision/(?P<rev>.+))?", path)
        file = re.fullmatch(r"/(?P<repo>.+?)/resolve/(?P<rev>[^/]+)/(?P<file>.+)", path)
        match = api or file
        repo = self.hub.repos.get(match["repo"]) if match else None
        if match is None or repo is None:
            self.refuse(
                Fault(
                    404,
                    {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                )
            )
        elif repo.refusal is not None:
            self.refuse(repo.refusal)
        elif (match["rev"] or "main") not in (repo.commit, *repo.revisions):
            self.refuse(
                Fault(
                    404,
                    {
                        "X-Error-Code": "RevisionNotFound",
                        "X-Error-Message": f"Invalid rev id: {match['rev']}",
                    },
                )
            )
        elif api:
            self._describe(match["repo"], repo)
        else:
            self._resolve(repo, match["file"], fault)

    def _describe(self, name: str, repo: Repo) -> None:
        described = {
            "id": repo.canonical or name,
            "sha": repo.commit,
            "siblings": [{"rfilename": file} for file in repo.files],
        }
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(described).encode())

    def _resolve(self, repo: Repo, file: str, fault: Fault) -> None:
        headers = {"X-Repo-Commit": repo.commit}
        data = repo.files.get(file)
        if data is None:
            self.refuse(Fault(404, {**headers, "X-Error-Code": "EntryNotFound"}))
            return
        tag = tag_of(file, data)
        if not file.endswith(".safetensors"):
            self.send_file(file, data, {**headers, "ETag": f'"{tag}"'}, fault)
            return
        self.reply(
            302,
            {
                **headers,
                "X-Linked-Size": str(len(data)),
                "X-Linked-ETag": f'"{tag}"',
                "Location": f"{self.hub.storage}/{tag}/{file}?signature={self.hub.signature}",
            },
        )


class _StorageHandler(_Handler):
    where = "storage"

    def route(self, path: str) -> None:
        fault = self.next_fault(self.hub.faults)
        if self.headers.get("Authorization") is not None:
            self.refuse(Fault(400, {}, b"only one way of authorization is allowed"))
            return
        if not self.path.endswith(f"signature={self.hub.signature}"):
            self.refuse(Fault(403, {}, b"Request has expired"))
            return
        if fault.status and "Content-Range" not in fault.headers:
            self.refuse(fault)
            return
        tag, name = path[1:].split("/", 1)
        for repo in self.hub.repos.values():
            data = repo.files.get(name)
            if data is not None and tag_of(name, data) == tag:
                self.send_file(name, data, {"ETag": f'"{tag[:32]}"'}, fault)
                return
        self.refuse(Fault(404))


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    # With the few of the default, a connection may wait a second for its turn.
    request_queue_size = 64
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is nothing to tell."""


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    """Run both ports until the block ends."""
    hub = Hub()
    ports = []
    for kind in (_HubHandler, _StorageHandler):
        handler = type(kind.__name__, (kind,), {"hub": hub})
        port = _Quiet(("127.0.0.1", 0), handler)
        threading.Thread(target=port.serve_forever, args=(0.01,), daemon=True).start()
        ports.append(port)
    # Two hosts by name, for the library takes no account of ports when it follows redirects.
    names = ("127.0.0.1", "localhost")
    hub.endpoint, hub.storage = (
        f"http://{name}:{port.server_address[1]}" for name, port in zip(names, ports, strict=True)
    )
    try:
        yield hub
    finally:
        hub.closing.set()
        for port in ports:
            port.shutdown()
            port.server_close()
