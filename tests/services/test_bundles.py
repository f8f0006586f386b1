"""Tokenizer bundles: in parts, from any host, checked against the signed record, kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.bundle import bundle_digest
from diffuse_core.domain.messages import BundlePart, GetBundle
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import ModelUnusable, Unreachable, UsageError
from diffuse_core.services import bundles
from diffuse_core.services.bundles import BundleFetcher
from tests.services.cluster import tokenizer_of
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.ports import Tokenizer
    from diffuse_core.services.links import Link
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

PART = 500


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "PART_BYTES", PART)


@pytest.fixture
def whole(tiny: TinyModel) -> bytes:
    return DirectorySource(tiny.path).bundle()


class Counting:
    """Counts what a host is asked for, and may answer in its place."""

    def __init__(
        self, host: Host, answer: Callable[[GetBundle], tuple[BundlePart, bytes]] | None = None
    ) -> None:
        self.offsets: list[int] = []
        self._honest = host.node.links._handlers[GetBundle]
        self._answer = answer
        host.node.links.handle(GetBundle, self._on_get)

    async def _on_get(self, link: Link, message: GetBundle, body: memoryview) -> None:
        self.offsets.append(message.offset)
        if self._answer is None:
            await self._honest(link, message, body)
        else:
            await link.send(*self._answer(message))


async def fetcher(cluster: Cluster, where: Path) -> tuple[BundleFetcher, list[Bundle]]:
    loaded: list[Bundle] = []

    def load(bundle: Bundle) -> Tokenizer:
        loaded.append(bundle)
        return tokenizer_of(bundle)

    return BundleFetcher(await cluster.observer(), FileStorage(where), load), loaded


async def test_a_bundle_comes_in_parts_and_is_kept(
    split: Callable, whole: bytes, tmp_path: Path
) -> None:
    cluster = await split(1)
    model = cluster.hosts[0].service.model
    asked = Counting(cluster.hosts[0])
    first, _ = await fetcher(cluster, tmp_path / "kept")
    tokenizer = await first.tokenizer(model)
    assert tokenizer.encode("w3 w4") == (3, 4)
    assert len(whole) > 3 * PART
    assert asked.offsets == list(range(0, len(whole), PART))
    assert FileStorage(tmp_path / "kept").read(f"bundle-{model.bundle}") == whole
    assert await first.tokenizer(model) is tokenizer
    second, _ = await fetcher(cluster, tmp_path / "kept")
    await second.tokenizer(model)
    assert len(asked.offsets) == len(range(0, len(whole), PART))


async def test_a_damaged_bundle_in_the_cache_is_fetched_again(
    split: Callable, whole: bytes, tmp_path: Path
) -> None:
    cluster = await split(1)
    model = cluster.hosts[0].service.model
    kept = FileStorage(tmp_path / "kept")
    kept.write(f"bundle-{model.bundle}", whole[:-1] + b"!")
    fetching, _ = await fetcher(cluster, tmp_path / "kept")
    await fetching.tokenizer(model)
    assert kept.read(f"bundle-{model.bundle}") == whole


async def test_a_cache_that_cannot_be_used_is_done_without(split: Callable) -> None:
    class Broken:
        def read(self, name: str) -> bytes | None:
            raise UsageError(f"cannot read {name}")

        def write(self, name: str, _data: bytes) -> None:
            raise UsageError(f"the disk is full: {name}")

    cluster = await split(1)
    fetching = BundleFetcher(await cluster.observer(), Broken(), tokenizer_of)
    assert (await fetching.tokenizer(cluster.hosts[0].service.model)).encode("w1") == (1,)


async def test_generations_at_once_fetch_one_after_the_other(
    split: Callable, tiny: TinyModel
) -> None:
    cluster = await split(2)
    client = await cluster.client()
    request = GenerateRequest(model="tiny", raw=words(5), max_tokens=3, ignore_eos=True)
    answers = await asyncio.gather(*(client.whole(request) for _ in range(4)))
    assert {tokens for _, tokens, _ in answers} == {tiny.says(ids(5), 3, ignore_eos=True)}


LIES = {
    "other bytes": lambda m, whole: (
        BundlePart(m.digest, m.offset, len(whole)),
        bytes(len(whole[m.offset : m.offset + PART])),
    ),
    "one bit": lambda m, whole: (
        BundlePart(m.digest, m.offset, len(whole)),
        bytes([whole[m.offset] ^ 1]) + whole[m.offset + 1 : m.offset + PART],
    ),
    "not held": lambda m, _: (BundlePart(m.digest, m.offset, 0), b""),
    "a hole": lambda m, whole: (BundlePart(m.digest, m.offset, len(whole)), b""),
    "too large": lambda m, _: (BundlePart(m.digest, m.offset, 2**27), bytes(PART)),
    "another place": lambda m, whole: (
        BundlePart(m.digest, m.offset + 1, len(whole)),
        whole[m.offset + 1 : m.offset + PART],
    ),
    "too much": lambda m, whole: (BundlePart(m.digest, m.offset, len(whole)), whole + b"!"),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_host_that_sends_something_else_is_passed_over(
    cluster: Cluster, whole: bytes, tmp_path: Path, name: str
) -> None:
    liar, honest = await cluster.host(), await cluster.host()
    model = liar.service.model
    lying = Counting(liar, lambda message: LIES[name](message, whole))
    telling = Counting(honest)
    fetching, loaded = await fetcher(cluster, tmp_path / "kept")
    tokenizer = await fetching.tokenizer(model)
    assert tokenizer.encode("w3") == (3,)
    if not lying.offsets:  # The honest one was asked first; now the liar is alone.
        telling.offsets.clear()
    cluster.crash(honest)
    alone, loaded = await fetcher(cluster, tmp_path / "empty")
    with pytest.raises((ModelUnusable, Unreachable)):
        await alone.tokenizer(model)
    assert lying.offsets
    assert not loaded
    assert FileStorage(tmp_path / "empty").read(f"bundle-{model.bundle}") is None


async def test_a_silent_host_is_passed_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bundles, "PART_TIMEOUT_S", 0.05)
    silent, _ = await cluster.host(), await cluster.host()
    silent.node.links.unhandle(GetBundle)
    for number in range(3):
        fetching, _ = await fetcher(cluster, tmp_path / str(number))
        await fetching.tokenizer(silent.service.model)
    cluster.crash(cluster.hosts[1])
    alone, _ = await fetcher(cluster, tmp_path / "alone")
    with pytest.raises(Unreachable):
        await alone.tokenizer(silent.service.model)


async def test_parts_that_nobody_asked_for_change_nothing(
    split: Callable, whole: bytes, tmp_path: Path
) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    model = host.service.model

    def twice(message: GetBundle) -> tuple[BundlePart, bytes]:
        part = whole[message.offset : message.offset + PART]
        return BundlePart(message.digest, message.offset, len(whole)), part

    async def answer(link: Link, message: GetBundle, _body: memoryview) -> None:
        await link.send(BundlePart("0" * 64, 0, 10), b"unasked")
        await link.send(*twice(message))

    host.node.links.handle(GetBundle, answer)
    fetching, _ = await fetcher(cluster, tmp_path / "kept")
    await fetching.tokenizer(model)
    assert bundle_digest(FileStorage(tmp_path / "kept").read(f"bundle-{model.bundle}")) == (
        model.bundle
    )


async def test_only_the_bundle_that_is_held_is_handed_out(split: Callable, whole: bytes) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    observer = await cluster.observer()
    got: asyncio.Queue[tuple[BundlePart, bytes]] = asyncio.Queue()

    async def hear(_link: Link, message: BundlePart, body: memoryview) -> None:
        got.put_nowait((message, bytes(body)))

    observer.links.handle(BundlePart, hear)
    link = await observer.links.to(host.id, (host.address,))
    digest = host.service.model.bundle
    await link.send(GetBundle("a" * 64, 0))
    await link.send(GetBundle(digest, 2**27))
    await link.send(GetBundle(digest, len(whole) - 3))
    assert await got.get() == (BundlePart("a" * 64, 0, 0), b"")
    assert await got.get() == (BundlePart(digest, 2**27, len(whole)), b"")
    assert await got.get() == (BundlePart(digest, len(whole) - 3, len(whole)), whole[-3:])


async def test_a_link_that_ends_in_the_middle_is_not_waited_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    hosts = [await cluster.host(), await cluster.host()]
    fetching, _ = await fetcher(cluster, tmp_path / "kept")
    asked: list[Host] = []

    def hang_up_on(host: Host) -> None:
        honest = host.node.links._handlers[GetBundle]

        async def on_get(link: Link, message: GetBundle, body: memoryview) -> None:
            if not asked or asked[0] is host:
                asked.append(host)
                await link.close()
            else:
                await honest(link, message, body)

        host.node.links.handle(GetBundle, on_get)

    for host in hosts:
        hang_up_on(host)
    async with asyncio.timeout(bundles.PART_TIMEOUT_S / 2):
        tokenizer = await fetching.tokenizer(hosts[0].service.model)
    assert tokenizer.encode("w1") == (1,)
    assert len(asked) == 1
