"""What operators get of services: where it is told, to whom, and until when."""

from __future__ import annotations

import asyncio
import logging
import socket
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from diffuse_core.adapters.metrics import of_answers
from diffuse_core.adapters.sd_notify import Notifier
from diffuse_core.cli.operated import metrics_address
from diffuse_core.errors import UsageError
from diffuse_core.operating import Operations, figures_served, is_loopback, server_watched
from diffuse_core.services.tally import AnswerTally
from diffuse_core.services.vitals import Health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

HEALTHY = Health(True, True)


def figures() -> Iterator[Metric]:
    return of_answers(AnswerTally())


def get(address: str, path: str, host: str | None = None) -> tuple[int, str]:
    connection = HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, None),
        ("9464", ("127.0.0.1", 9464)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),  # noqa: S104
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_a_port_alone_is_of_loopback(text: str | None, address: object) -> None:
    assert metrics_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "99999", "host:", ":1", "a b:1", "-1"])
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--metrics"):
        metrics_address(text)


def test_loopback_is_told_from_what_others_reach() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert not any(is_loopback(one) for one in ("0.0.0.0", "::", "10.0.0.1", "name"))  # noqa: S104


async def test_figures_are_told_until_the_end_and_never_to_pages_of_others() -> None:
    async with figures_served(("127.0.0.1", 0), figures, lambda: HEALTHY) as address:
        status, text = await asyncio.to_thread(get, address, "/metrics")
        assert status == 200
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"diffuse_answers_started", "process_open_fds"} <= names
        assert (await asyncio.to_thread(get, address, "/readyz"))[0] == 200
        assert (await asyncio.to_thread(get, address, "/metrics", "rebound.example"))[0] >= 400
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(get, address, "/metrics")


async def test_what_others_reach_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "diffuse_core")
    async with figures_served(("0.0.0.0", 0), figures, lambda: HEALTHY) as address:  # noqa: S104
        port = address.rpartition(":")[2]
        # Names are those that the network gives this machine.
        assert (await asyncio.to_thread(get, f"127.0.0.1:{port}", "/metrics", "host-1"))[0] == 200
    assert "firewall" in caplog.text


async def test_a_taken_port_is_told_with_the_option_that_helps() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="choose another with --metrics"):
            async with figures_served(taken.getsockname(), figures, lambda: HEALTHY):
                pass


async def test_nothing_is_told_where_nobody_asked() -> None:
    async with figures_served(None, figures, lambda: HEALTHY) as address:
        assert address is None


async def test_a_server_tells_what_it_answers_and_that_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Notifier, "_send", lambda _self, text: told.append(text))
    operations = Operations(("127.0.0.1", 0), Notifier("/nowhere"))
    tally, stopping = AnswerTally(), asyncio.Event()
    tally.healed = 3
    addresses: list[str] = []
    monkeypatch.setattr(
        "diffuse_core.operating.log.info", lambda _text, address: addresses.append(address)
    )
    trouble = "no network"
    async with server_watched(operations, tally, "serves", lambda: trouble, stopping):
        _, text = await asyncio.to_thread(get, addresses[0], "/metrics")
        assert "diffuse_answers_healed_total 3.0" in text
        assert 'role="serve"' in text
        assert told[0].startswith("READY=1\nSTATUS=serves; no network")
        status, text = await asyncio.to_thread(get, addresses[0], "/readyz")
        assert (status, "no network" in text) == (503, True)
        trouble = ""
        assert (await asyncio.to_thread(get, addresses[0], "/readyz"))[0] == 200
        stopping.set()
        assert (await asyncio.to_thread(get, addresses[0], "/readyz"))[0] == 503
        assert (await asyncio.to_thread(get, addresses[0], "/healthz"))[0] == 200
    assert told[-1] == "STOPPING=1"
