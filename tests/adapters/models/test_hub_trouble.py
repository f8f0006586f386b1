"""The hub and its storage fail, refuse and lie: what passes is got over, the rest is told."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.adapters.models.hub_client import PACE
from diffuse_core.adapters.models.hub_name import HubName, parse_hub_name
from diffuse_core.adapters.models.hub_source import HubSource, open_hub
from diffuse_core.errors import ModelUnknown, ModelUnusable, UsageError
from tests.adapters.models.hub_server import Fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.adapters.models.hub_server import Hub

REPO = "org/tiny"
FILE = "model.safetensors"
TRIES = 3
QUICK = replace(PACE, waits=(0.0,) * TRIES, stall=10.0, part=2**16, threads=1)
IMPATIENT = replace(QUICK, stall=0.2)
"""For lines that do stall: on a busy machine the others could be taken for stalled as well."""


def silent(_: float) -> None:
    pass


@pytest.fixture
def directory(save: Callable) -> Path:
    return save(hidden_size=128, intermediate_size=256)


@pytest.fixture
def open_model(hub: Hub, tmp_path: Path) -> Callable:
    def make(text: str = REPO, **settings: object) -> HubSource:
        name = parse_hub_name(text)
        assert isinstance(name, HubName)
        options = {"endpoint": hub.endpoint, "pace": QUICK, **settings}
        return open_hub(name, tmp_path / "cache", silent, **options)

    return make


@pytest.fixture
def source(
    hub: Hub, open_model: Callable, directory: Path, request: pytest.FixtureRequest
) -> HubSource:
    """Opened, and nothing of what is fetched next is here."""
    hub.add(REPO, directory)
    stalls = "[stalled]" in request.node.name
    found = open_model(pace=IMPATIENT if stalls else QUICK)
    hub.forget()
    return found


def check(source: HubSource, directory: Path) -> None:
    local = DirectorySource(directory)
    for name in local.names:
        mine, theirs = ([bytes(p.data) for p in s.pieces(name)] for s in (source, local))
        assert mine == theirs, name


PASSING = {
    "dropped": Fault(drop_after=50_000),
    "dropped at once": Fault(drop_after=0),
    "stalled": Fault(stall_after=50_000),
    "too many requests": Fault(429, {"Retry-After": "0"}),
    "overloaded": Fault(503),
    "fewer than asked": Fault(fewer=10_000),
    "more than asked": Fault(extra=10_000),
    "range ignored": Fault(ignore_range=True),
    "link expired": Fault(403, {}, b"Request has expired"),
}


@pytest.mark.parametrize("name", PASSING)
def test_trouble_that_passes_is_got_over(
    hub: Hub, source: HubSource, directory: Path, name: str
) -> None:
    for _ in range(TRIES):
        hub.faults.append(PASSING[name])
    source.fetch(source.names, silent)
    assert not hub.faults
    check(source, directory)
    total = (directory / FILE).stat().st_size
    # Only what got lost comes twice, and what an ignored range made the storage send.
    assert hub.weights_sent() < total + (4 * total if name == "range ignored" else 2**17)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_the_hub_itself_may_fail_for_a_while(
    hub: Hub, open_model: Callable, directory: Path, status: int
) -> None:
    hub.add(REPO, directory)
    hub.hub_faults.extend([Fault(status)] * TRIES)
    assert open_model().content == DirectorySource(directory).content


def test_an_old_link_into_the_storage_is_renewed(
    hub: Hub, source: HubSource, directory: Path
) -> None:
    half = sorted(source.names)[:10]
    source.fetch(half, silent)
    hub.signature = "s2"
    hub.forget()
    source.fetch(source.names, silent)
    assert hub.asked(FILE, "HEAD") == [None]
    check(source, directory)


LASTING = {
    "dropped": ([Fault(drop_after=10)] * (TRIES + 1), "broke|closed|ended"),
    "stalled": ([Fault(stall_after=10)] * (TRIES + 1), "ReadTimeout"),
    "failing": ([Fault(500)] * (TRIES + 1), "HTTP 500"),
    "busy": ([Fault(429, {"Retry-After": "7000"})], r"too many requests.*in 7000 s or later"),
}


@pytest.mark.parametrize("name", LASTING)
def test_trouble_that_lasts_is_told(hub: Hub, source: HubSource, name: str) -> None:
    faults, message = LASTING[name]
    hub.faults.extend(faults)
    with pytest.raises(ModelUnknown, match=message) as caught:
        source.fetch(source.names, silent)
    told = str(caught.value)
    assert f"org/tiny cannot be fetched from {hub.endpoint}" in told
    assert "try again" in told
    assert not hub.faults
    # Where the storage is may be a secret of the hub's.
    assert hub.storage not in told
    assert "signature" not in told


def test_each_pause_is_as_long_as_asked_for(hub: Hub, directory: Path, tmp_path: Path) -> None:
    hub.add(REPO, directory)
    waited: list[float] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    from diffuse_core.adapters.models.hub_client import HubClient

    client = HubClient(HubName(REPO), hub.endpoint, replace(QUICK, waits=(1.0, 2.0, 4.0)))
    limit = {"RateLimit": '"api";r=0;t=5'}
    hub.hub_faults.extend([Fault(503), Fault(429, {"Retry-After": "3"}), Fault(429, limit)])
    assert client.look_up(Clock()).repo == REPO
    assert waited == [1.0, 3.0, 5.0]


LIES = {
    "another range": (
        Fault(206, {"Content-Range": "bytes 0-99/{size}"}),
        r"bytes 0 to 99 come where those from \d+ on were asked",
    ),
    "no range": (Fault(206, {"Content-Range": "bytes */5"}), "without saying which"),
    "another size": (
        Fault(206, {"Content-Range": "bytes {start}-{last}/77"}),
        r"it has 77 bytes now, not \d+",
    ),
    "beyond": (Fault(416), "shorter than the hub said: it changed; try again"),
    "compressed": (Fault(headers={"Content-Encoding": "gzip"}), "sent compressed"),
    "another whole": (
        Fault(200, {"Content-Length": "5"}, b"hello"),
        r"it has 5 bytes now, not \d+",
    ),
    "gone": (Fault(451, {}, b"for reasons"), "HTTP 451"),
}


@pytest.mark.parametrize("name", LIES)
def test_what_contradicts_is_refused(hub: Hub, source: HubSource, name: str) -> None:
    fault, message = LIES[name]
    size = len(hub.repos[REPO].files[FILE])
    first = min(tensor.offset for tensor in source.stored(source.names))
    headers = {
        key: value.format(size=size, start=first, last=first + 99)
        for key, value in fault.headers.items()
    }
    hub.faults.append(replace(fault, headers=headers))
    with pytest.raises(ModelUnknown, match=message):
        source.fetch(source.names, silent)
    assert not hub.faults


def test_a_file_that_changes_while_it_is_read_is_refused(hub: Hub, source: HubSource) -> None:
    hub.faults.extend([Fault(), Fault(headers={"ETag": '"other"'})])
    with pytest.raises(ModelUnusable, match="changed while it was read; try again later"):
        source.fetch(source.names, silent)


def test_a_file_that_is_another_when_asked_again_is_refused(
    hub: Hub, source: HubSource, open_model: Callable
) -> None:
    files = hub.repos[REPO].files
    files[FILE] = files[FILE][:-4] + b"abcd"
    hub.signature = "s2"
    with pytest.raises(ModelUnusable, match="changed on the hub while it was read"):
        source.fetch(source.names, silent)
    with pytest.raises(ModelUnusable, match=r"under the same commit.*; delete \S+ to fetch"):
        open_model().fetch(source.names, silent)


def test_no_more_is_read_than_was_asked_for_when_ranges_are_ignored(
    hub: Hub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffuse_core.adapters.models import hub_body

    monkeypatch.setattr(hub_body, "MAX_SURPLUS", 2**16)
    hub.faults.extend([Fault(ignore_range=True)] * 9)
    with pytest.raises(ModelUnusable, match=r"does not give parts of files.*give its directory"):
        source.fetch(["model.layers.2.mlp.up_proj.weight"], silent)


REFUSALS = {
    "gated": (
        Fault(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Ask for access hf_secret"}),
        r"org/tiny is gated \(Ask for access …\); see http://\S+/org/tiny, accept its terms",
    ),
    "private": (
        Fault(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}),
        r"no model org/tiny that you may see \(Repository not found\); check the name",
    ),
    "token": (
        Fault(401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
        r"does not accept your token \(Invalid credentials.*\); renew HF_TOKEN",
    ),
    "disabled": (
        Fault(403, {"X-Error-Message": "Access to this resource is disabled."}),
        r"denies access to org/tiny \(Access to this resource is disabled\.\)",
    ),
    "in the body": (
        Fault(403, {"Content-Type": "application/json"}, b'{"error": "Not in your country"}'),
        r"denies access to org/tiny \(Not in your country\)",
    ),
    "no hub": (Fault(200, {}, b"<html>Log in</html>"), "no model hub.*check HF_ENDPOINT"),
    "odd": (Fault(200, {}, b'{"id": "org/tiny", "sha": "main"}'), "names no commit"),
    "hostile": (
        Fault(200, {}, b'{"id": "../../x", "sha": "%s"}' % (b"a" * 40)),
        "no model hub",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_the_hubs_reason_and_the_next_step_are_told(
    hub: Hub, open_model: Callable, name: str
) -> None:
    refusal, message = REFUSALS[name]
    hub.add(REPO, {}, refusal=refusal)
    with pytest.raises(ModelUnknown, match=message) as caught:
        open_model()
    assert "hf_secret" not in str(caught.value)


def test_a_user_without_token_is_told_to_set_one(
    hub: Hub, open_model: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    hub.add(REPO, {}, refusal=Fault(401, {"X-Error-Code": "GatedRepo"}))
    with pytest.raises(ModelUnknown, match="set HF_TOKEN to a token of that account"):
        open_model()
    with pytest.raises(ModelUnknown, match="check the name, and set HF_TOKEN if it is private"):
        open_model("org/nothing")
    assert {seen.authorization for seen in hub.seen} == {None}


def test_a_missing_revision_is_named(hub: Hub, open_model: Callable, directory: Path) -> None:
    hub.add(REPO, directory)
    with pytest.raises(ModelUnknown, match=r"org/tiny has no revision v9 \(Invalid rev id: v9\)"):
        open_model("org/tiny@v9")


def test_nobody_there(hub: Hub, open_model: Callable) -> None:
    with pytest.raises(ModelUnknown, match=r"ConnectError.*check the connection and try again"):
        open_model(endpoint="http://127.0.0.1:9")


def test_offline_is_honoured(
    hub: Hub, open_model: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnknown, match="HF_HUB_OFFLINE forbids to fetch it; unset it"):
        open_model()
    assert hub.seen == []


@pytest.mark.parametrize(
    ("token", "endpoint", "message"),
    [
        ("hf_sécret", None, r"\(HF_TOKEN\) has characters that no token has$"),
        ("hf_secret", "ftp://x", "HF_ENDPOINT is 'ftp://x', which is no http address"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    open_model: Callable,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    endpoint: str | None,
    message: str,
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(UsageError, match=message):
        open_model(endpoint=endpoint or hub.endpoint)


def test_redirects_have_an_end(hub: Hub, source: HubSource) -> None:
    again = f"{hub.storage}/round?signature={hub.signature}"
    hub.faults.extend([Fault(302, {"Location": again})] * 20)
    with pytest.raises(ModelUnknown, match="redirects without end"):
        source.fetch(source.names, silent)


def test_a_stalled_line_does_not_keep_a_user_who_has_enough(
    hub: Hub, open_model: Callable, directory: Path
) -> None:
    hub.add(REPO, directory)
    source = open_model(pace=replace(QUICK, stall=60.0))
    hub.faults.append(Fault(stall_after=10))

    class Enough(Exception):  # noqa: N818
        pass

    told: list[float] = []

    def cancel(fraction: float) -> None:
        told.append(fraction)
        if len(told) > 2:
            raise Enough

    with pytest.raises(Enough):
        source.fetch(source.names, cancel)
