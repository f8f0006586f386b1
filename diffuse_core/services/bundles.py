"""Tokenizer bundles: a Host hands its own out, a Client fetches, checks and caches them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from diffuse_core.domain.bundle import MAX_BUNDLE_BYTES, Bundle, bundle_digest, open_bundle
from diffuse_core.domain.coverage import holders
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.messages import BundlePart, GetBundle
from diffuse_core.domain.records import record_node
from diffuse_core.errors import ChannelClosed, DiffuseError, ModelUnusable, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.ports import Storage, Tokenizer
    from diffuse_core.services.directory import Directory
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

PART_BYTES = 2**20
PART_TIMEOUT_S = 20.0
MAX_LOADED = 4


class BundleShelf:
    """Hands out this Host's bundle in parts."""

    def __init__(self, links: Links, data: bytes) -> None:
        self._data = data
        self._digest = bundle_digest(data)
        links.handle(GetBundle, self._on_get)

    async def _on_get(self, link: Link, message: GetBundle, _body: memoryview) -> None:
        held = message.digest == self._digest
        part = self._data[message.offset : message.offset + PART_BYTES] if held else b""
        total = len(self._data) if held else 0
        await link.send(BundlePart(message.digest, message.offset, total), part)


class BundleFetcher:
    """Gets tokenizers: from memory, from the cache, from any Host of the model."""

    def __init__(
        self, directory: Directory, cache: Storage, load: Callable[[Bundle], Tokenizer]
    ) -> None:
        self._directory = directory
        self._cache = cache
        self._load = load
        self._loaded: dict[str, Tokenizer] = {}
        self._loading: dict[str, asyncio.Future[Tokenizer]] = {}
        self._first: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[tuple[NodeId, str], asyncio.Future[tuple[BundlePart, bytes]]] = {}
        self._asked: dict[asyncio.Future[tuple[BundlePart, bytes]], Link] = {}
        directory.links.handle(BundlePart, self._on_part)
        directory.links.on_ended(self._on_ended)

    async def tokenizer(self, model: ModelRef) -> Tokenizer:
        """The tokenizer of `model`.

        Raises:
            Unreachable: no Host of it answered.
            ModelUnusable: what they sent does not match their signed records.
        """
        digest = model.bundle
        if (known := self._loaded.get(digest)) is not None:
            return known
        # Many may ask at once, and a tokenizer takes much memory while it is loaded.
        async with self._first.setdefault(digest, asyncio.Lock()):
            if (known := self._loaded.get(digest)) is not None:
                return known
            if (loading := self._loading.get(digest)) is None:
                cached = await asyncio.to_thread(self._cached, digest)
                loading = self._begin(digest, cached or await self._fetch_any(model))
            # Who goes away meanwhile leaves it to the next: a thread cannot be called off.
            await asyncio.wait((loading,))
            return loading.result()

    def _begin(self, digest: str, bundle: Bundle) -> asyncio.Future[Tokenizer]:
        loading = asyncio.get_running_loop().run_in_executor(None, self._load, bundle)
        self._loading[digest] = loading
        loading.add_done_callback(lambda done: self._end(digest, done))
        return loading

    def _end(self, digest: str, loading: asyncio.Future[Tokenizer]) -> None:
        del self._loading[digest]
        if loading.cancelled() or loading.exception() is not None:
            return
        while len(self._loaded) >= MAX_LOADED:
            self._loaded.pop(next(iter(self._loaded)))
        self._loaded[digest] = loading.result()

    async def _fetch_any(self, model: ModelRef) -> Bundle:
        problem: DiffuseError = Unreachable(
            "no host of the model is left to ask for its tokenizer"
        )
        for member in holders(self._directory.members(), model):
            node = record_node(member.record)
            try:
                return await self._fetch(node, model.bundle)
            except (Unreachable, ModelUnusable) as error:
                log.warning("no tokenizer from %s: %s", short_text(node), error)
                problem = error
        raise problem

    def _cached(self, digest: str) -> Bundle | None:
        name = f"bundle-{digest}"
        try:
            data = self._cache.read(name)
            if data is None:
                return None
            try:
                return open_bundle(data, digest)
            except ModelUnusable as error:
                log.warning("dropped a damaged bundle from the cache: %s", error)
                self._cache.delete(name)
        except DiffuseError as error:
            log.warning("the cache of tokenizers is of no use: %s", error)
        return None

    async def _fetch(self, node: NodeId, digest: str) -> Bundle:
        link = await self._directory.links.to(node, self._directory.addresses(node))
        data = bytearray()
        while True:
            part, body = await self._part(link, digest, len(data))
            if part.total == 0 or part.total > MAX_BUNDLE_BYTES or part.offset != len(data):
                raise ModelUnusable(f"host {short_text(node)} does not hold the bundle it signed")
            data += body
            if len(data) >= part.total:
                break
            if not body:
                raise ModelUnusable(f"host {short_text(node)} sent a bundle with a hole in it")
        bundle = open_bundle(bytes(data), digest)
        try:
            await asyncio.to_thread(self._cache.write, f"bundle-{digest}", bytes(data))
        except DiffuseError as error:
            log.warning("the tokenizer is not kept: %s", error)
        return bundle

    async def _part(self, link: Link, digest: str, offset: int) -> tuple[BundlePart, bytes]:
        key = (link.remote, digest)
        while key in self._waiting:  # Another generation fetches the same; one after the other.
            await asyncio.wait([self._waiting[key]])
        future: asyncio.Future[tuple[BundlePart, bytes]]
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._asked[future] = link
        try:
            await link.send(GetBundle(digest, offset))
            async with asyncio.timeout(PART_TIMEOUT_S):
                return await future
        except TimeoutError:
            raise Unreachable(
                f"host {short_text(link.remote)} sent no bundle within {PART_TIMEOUT_S:.0f} s"
            ) from None
        finally:
            future.cancel()
            del self._waiting[key], self._asked[future]

    async def _on_part(self, link: Link, message: BundlePart, body: memoryview) -> None:
        future = self._waiting.get((link.remote, message.digest))
        if future is not None and not future.done():
            future.set_result((message, bytes(body)))

    def _on_ended(self, link: Link) -> None:
        for future, asked in self._asked.items():
            if asked is link and not future.done():
                name = short_text(link.remote)
                future.set_exception(ChannelClosed(f"the link to host {name} ended"))
