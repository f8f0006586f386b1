"""Where a sentinel may dial a node back: there where it sees it, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.reachability import dial_back_address, ip_of, neighbourhood
from tests.domain.domain_samples import ordered

PORT = 9440


@pytest.mark.parametrize(
    ("seen", "dialled"),
    [
        ("8.8.4.4:50000", f"8.8.4.4:{PORT}"),
        ("192.168.1.5:1", f"192.168.1.5:{PORT}"),
        ("100.64.0.9:5", f"100.64.0.9:{PORT}"),
        ("127.0.0.1:5", f"127.0.0.1:{PORT}"),
        ("[::1]:5", f"[::1]:{PORT}"),
        ("[2a00:1450::1]:5", f"[2a00:1450::1]:{PORT}"),
        ("[fd00::1]:5", f"[fd00::1]:{PORT}"),
        # The same machines, as a socket for both kinds of IP names them.
        ("[::ffff:8.8.4.4]:5", f"8.8.4.4:{PORT}"),
        ("[::ffff:127.0.0.1]:5", f"127.0.0.1:{PORT}"),
        ("[::ffff:10.0.0.1]:5", f"10.0.0.1:{PORT}"),
    ],
)
def test_a_node_is_dialled_where_it_is_seen_and_nowhere_else(seen: str, dialled: str) -> None:
    assert dial_back_address(seen, PORT) == dialled
    assert ip_of(dialled) == ip_of(seen)


@pytest.mark.parametrize(
    "seen",
    [
        "",
        ":9440",
        "localhost:5",
        "sentinel.example.org:5",
        "8.8.4.4",
        "8.8.4.4:port",
        "8.8.4.4:٣",
        "[8.8.4.4]:5",
        "2a00:1450::1:5",
        "1:5",
        "127.1:5",
        "0x7f.0.0.1:5",
        "010.0.0.1:5",
        "0.0.0.0:5",
        "0.1.2.3:5",
        "[::]:5",
        "169.254.169.254:5",
        "224.0.0.1:5",
        "255.255.255.255:5",
        "240.0.0.1:5",
        "[fe80::1]:5",
        "[fe80::1%eth0]:5",
        "[2a00:1450::1%1]:5",
        "[ff02::1]:5",
        "[::ffff:169.254.169.254]:5",
        "[::ffff:224.0.0.1]:5",
        "[::ffff:0.0.0.0]:5",
        # Old and new ways to hide an IPv4 address in an IPv6 one.
        "[::127.0.0.1]:5",
        "[2002:7f00:1::1]:5",
        "[2002:c0a8:105::1]:5",
        "[2001:0:0a00:1::1]:5",
        "[64:ff9b::10.0.0.1]:5",
        "mem:1",
        "dial:7",
        f"relay:{ordered(1).hex()}@8.8.4.4:5",
    ],
)
def test_addresses_that_lead_to_no_single_machine_are_refused(seen: str) -> None:
    assert dial_back_address(seen, PORT) is None


@pytest.mark.parametrize("port", [0, -1, 2**16])
def test_only_ports_are_dialled(port: int) -> None:
    assert dial_back_address("8.8.4.4:5", port) is None


@given(st.ip_addresses(), st.integers(1, 2**16 - 1), st.integers(1, 2**16 - 1))
def test_no_caller_leads_a_sentinel_elsewhere(ip: object, own: int, port: int) -> None:
    seen = f"[{ip}]:{own}" if ":" in str(ip) else f"{ip}:{own}"
    dialled = dial_back_address(seen, port)
    if dialled is not None:
        there, caller = ip_of(dialled), ip_of(seen)
        assert there == caller
        assert (there.is_private, there.is_loopback) == (caller.is_private, caller.is_loopback)
        assert dialled.endswith(f":{port}")


@given(st.text(max_size=60))
def test_any_text_is_an_ip_or_none(text: str) -> None:
    dial_back_address(text, PORT)


def test_limits_count_what_one_household_has() -> None:
    one, other = ip_of("[2a00:1450::1]:1"), ip_of("[2a00:1450::ffff:1]:1")
    assert neighbourhood(one) == neighbourhood(other)
    assert neighbourhood(one) != neighbourhood(ip_of("[2a00:1450:0:1::1]:1"))
    assert neighbourhood(ip_of("8.8.4.4:1")) != neighbourhood(ip_of("8.8.4.5:1"))
