"""A sentinel that relays handles nothing that it could read: all of it is kept, and searched."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.adapters.file_storage.key_file import read_identity
from diffuse_core.domain.channel import network_tag
from tests.e2e.capture import MASK_BYTES, Tape
from tests.e2e.memory_search import found_in_memory, unreadable
from tests.e2e.sealed_town import NETWORK, SealedTown
from tests.e2e.town import Town
from tests.services.tiny_model import ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROMPT, TOKENS = 24, 32
CIRCUIT_KEYS = 6
"""Of three circuits, the client's to both hosts and one between these, each in two directions."""


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return make_tiny_model(tmp_path / "tiny")


async def needles_of(town: SealedTown, tiny: TinyModel) -> tuple[dict[str, bytes], set[str]]:
    """Have a question answered; all that must not be seen, and of it what the ends did say."""
    text, answer = await town.ask(words(PROMPT), TOKENS)
    assert answer == tiny.says(ids(PROMPT), TOKENS, ignore_eos=True)
    bundle = (tiny.path / "tokenizer.json").read_bytes()
    said = {
        # As msgpack writes a prompt: small numbers are a byte each.
        "prompt ids": bytes(ids(PROMPT)),
        "tokenizer": bundle[len(bundle) // 2 :][:48],
        "hidden states": town.hidden[-1],
        "session": next(iter(town.sessions)),
    }
    assert msgspec.msgpack.encode(ids(PROMPT)).endswith(said["prompt ids"])
    other = {
        "prompt": words(PROMPT).encode(),
        "part of the prompt": words(PROMPT).encode()[20:40],
        "answer": text.encode(),
        "part of the answer": text.encode()[20:40],
        "answer ids": bytes(answer),
        **town.secrets,
    }
    return {**said, **other}, set(said)


async def test_what_a_sentinel_handles_holds_nothing_of_what_it_relays(
    tiny: TinyModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with AsyncExitStack() as stack:
        town = SealedTown(stack, tiny, tmp_path)
        needles, said = await needles_of(town, tiny)
        # What is looked for was there to be seen, and the same look finds it.
        assert town.said.found(needles) == said
        assert sum("of a circuit" in name for name in needles) >= CIRCUIT_KEYS
        assert town.seen.size > town.said.size
        assert town.wire.size > town.seen.size
        assert town.seen.holds(town.hosts[0].id)
        assert town.wire.holds(network_tag(NETWORK))
        assert not town.wire.holds(town.hosts[0].id)
    # Nothing at the end of it either.
    assert town.seen.found(needles) == set()
    assert town.wire.found(needles) == set()
    assert found_in_logs(caplog.text, needles) == set()


async def test_the_same_look_finds_what_was_not_sealed(tiny: TinyModel, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        town = SealedTown(stack, tiny, tmp_path, careless=True)
        needles, said = await needles_of(town, tiny)
        assert town.seen.found(needles) == said
        # Its connections are sealed besides, each as a whole.
        assert town.wire.found(needles) == set()


def found_in_logs(log: str, needles: dict[str, bytes]) -> set[str]:
    """What a log tells, in whatever way bytes are commonly written."""
    assert log
    ways = {
        name: (needle.hex(), repr(needle)[2:-1], str(list(needle)), str(tuple(needle)))
        for name, needle in needles.items()
    }
    return {name for name, texts in ways.items() if any(text in log for text in texts)}


def test_masks_hide_nothing_from_the_look() -> None:
    secret, mask = b"a secret of some length", b"\x07\xa1\x55\xfe"
    tape = Tape()
    text = b"before" + secret + b"after"
    tape.stream().extend(byte ^ mask[at % MASK_BYTES] for at, byte in enumerate(text))
    assert secret not in tape.streams[0]
    assert tape.holds(secret)
    assert not tape.holds(secret[::-1])


def test_the_memory_of_a_sentinel_holds_nothing_of_what_it_relays(
    tmp_path: Path, talkative: TinyModel
) -> None:
    with Town(tmp_path, talkative) as town:
        town.start_sentinels("s")
        town.run_host("h", "--relay", "always")
        town.until(lambda: town.reserved("h", "s"))
        if reason := unreadable(town.running["s"].pid):
            pytest.skip(reason)
        with town.asking("o", words(PROMPT), 1500) as asking:
            asking.until_words(100)
            needles = {
                "prompt": words(PROMPT).encode(),
                "answer": " ".join(asking.words[40:60]).encode(),
                "host's seed": seed(tmp_path / "h"),
                "sentinel's seed": seed(tmp_path / "s"),
            }
            where = {
                name: found_in_memory(pid, needles)
                for name, pid in (
                    ("client", asking.process.pid),
                    ("host", town.running["h"].pid),
                    ("sentinel", town.running["s"].pid),
                )
            }
            # It was under way all the time.
            assert asking.process.poll() is None
        assert where == {
            "client": {"prompt", "answer"},
            "host": {"host's seed"},
            "sentinel": {"sentinel's seed"},
        }


def seed(state: Path) -> bytes:
    """The secret of the node with that state directory."""
    identity = read_identity(state, "identity.key")
    assert identity is not None
    return identity.seed
