"""Guesses are told to nobody, and come back as they were whatever comes."""

from __future__ import annotations

import msgspec

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import ForwardHidden
from diffuse_core.services import own_links
from diffuse_core.services.links import Links
from diffuse_core.services.own_links import DiscreetLink, Guesses, OwnLinks

SESSION = b"s" * 16


def rows(position: int, *drafts: int, epoch: int = 0) -> ForwardHidden:
    return ForwardHidden(SESSION, position, 1 + len(drafts), drafts, epoch)


def test_zeros_go_out_and_ids_come_back() -> None:
    guesses = Guesses()
    given = rows(40, 1234, 2345)
    sent = guesses.conceal(given)
    assert sent == msgspec.structs.replace(given, drafts=(0, 0))
    assert guesses.reveal(sent) == given


def test_rows_without_guesses_are_left_alone() -> None:
    guesses = Guesses()
    assert guesses.conceal(rows(40)) == rows(40)
    assert guesses.reveal(rows(40)) == rows(40)


def test_what_others_make_of_it_does_not_count() -> None:
    guesses = Guesses()
    guesses.conceal(rows(40, 1234, 2345))
    assert guesses.reveal(rows(40, 7, 8, 9)).drafts == (1234, 2345)
    assert guesses.reveal(rows(40)).drafts == (1234, 2345)
    assert guesses.reveal(rows(41, 7)).drafts == ()
    assert guesses.reveal(rows(40, 7, epoch=1)).drafts == ()


def test_rows_sent_again_without_guesses_have_none() -> None:
    guesses = Guesses()
    guesses.conceal(rows(40, 1234))
    guesses.conceal(rows(40))
    assert guesses.reveal(rows(40, 0)).drafts == ()


def test_the_oldest_are_forgotten() -> None:
    guesses = Guesses()
    for position in range(own_links.MAX_GUESSES + 1):
        guesses.conceal(rows(position, 5))
    assert guesses.reveal(rows(0, 0)).drafts == ()
    assert guesses.reveal(rows(1, 0)).drafts == (5,)


async def test_what_came_out_of_a_socket_goes_to_its_handler_at_once() -> None:
    own, heard = Identity(b"1" * 32).node, []

    def take(link: object, message: ForwardHidden, body: memoryview) -> bool:
        heard.append((message, bytes(body)))
        return len(heard) == 1

    links = OwnLinks(Links(MemoryNetwork().transport(own), own), own, Guesses())
    given = object(), rows(40), memoryview(b"rows")
    assert not links.promptly(*given)
    links.handle_promptly(ForwardHidden, take)
    assert links.promptly(*given)
    assert not links.promptly(*given)
    assert heard == [(rows(40), b"rows")] * 2
    links.unhandle(ForwardHidden)
    assert not links.promptly(*given)


async def test_no_stranger_is_ever_met_undisguised() -> None:
    """Neither over a link that is dialled, nor over one that is there."""
    network = MemoryNetwork()
    own, other = (Identity(bytes([number]) * 32).node for number in (1, 2))
    pool, far = (Links(network.transport(node), node) for node in (own, other))
    listener = await network.transport(other).listen("mem", 0, far.accept)
    links = OwnLinks(pool, own, Guesses())
    assert links.find(other) is None
    dialled = await links.to(other, (listener.address,))
    assert isinstance(dialled, DiscreetLink)
    assert links.find(other) is dialled
    assert pool.find(other) is dialled.link
    await pool.close()
    await far.close()
    await listener.close()
