"""The metrics parse, stay small whatever the network, and are all that the dashboards ask for."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from diffuse_core.adapters import metrics
from diffuse_core.adapters.metrics import families, metrics_app, of_server
from diffuse_core.domain.coverage import cover
from diffuse_core.domain.machine import GpuFigures
from diffuse_core.domain.messages import OpenSession, Ping
from diffuse_core.domain.roster import RosterCounts
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import RelayFigures
from diffuse_core.ports import SensorSample
from diffuse_core.services.link import Traffic
from diffuse_core.services.loop_lag import Lags
from diffuse_core.services.tally import AnswerTally, StageTally
from diffuse_core.services.vitals import Health, HostFigures, NodeFigures, RelayCounts

HEALTHY = Health(True, True)


def everything() -> NodeFigures:
    """Figures of a node that has all there is."""
    traffic = Traffic()
    traffic.got(Ping, 100)
    traffic.got(type(None), 7)
    traffic.gave(OpenSession, 50)
    tally = StageTally()
    tally.short.add(0.004)
    tally.short.add(0.2)
    tally.long.add(99.0)
    tally.refused["memory"] += 2
    model = SimpleNamespace(
        id='od"d\\m\n', fingerprint="f" * 64, contract="bf16", shape=SimpleNamespace(layers=30)
    )
    host = HostFigures(
        state="ready",
        text="ready",
        device="cpu",
        model=model,
        slice=Slice(0, 20),
        coverage=cover(30, [Slice(0, 20)], 2),
        tally=tally,
        kv_used=5,
        kv_budget=10,
        round_trips={"abcd1234": 0.01},
    )
    return NodeFigures(
        version="1.2.3",
        role="host",
        node="abcd1234",
        uptime_s=1.5,
        lags=Lags(0.001, 0.002, 0.003, 0.004, 0.005),
        tasks=7,
        links=3,
        links_relayed=1,
        traffic=traffic,
        gossip=RosterCounts(Counter(suspect=2), Counter(future=1), 4, 1),
        members={"alive": 1000, "dead": 3},
        models={"Incomplete": 1},
        answers=AnswerTally(),
        sensed=SensorSample((GpuFigures("GPU", 100, 50, 20.0, None),), (), 10**10),
        host=host,
        relay=RelayCounts(
            now=RelayFigures(1, 2, 3), reserved=4, carried=5, refused=Counter(busy=6)
        ),
    )


def client(figures: NodeFigures, health: Health = HEALTHY) -> TestClient:
    return TestClient(metrics_app(lambda: families(figures), lambda: health))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


def test_the_figures_are_told_as_prometheus_reads_them() -> None:
    answer = client(everything()).get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.text
    assert value(text, "diffuse_build_info", version="1.2.3", role="host", node="abcd1234") == 1
    assert value(text, "diffuse_host_state", state="ready") == 1
    assert value(text, "diffuse_host_state", state="loading") == 0
    assert value(text, "diffuse_coverage_state", coverage="Incomplete") == 1
    assert value(text, "diffuse_layers_missing") == 10
    assert value(text, "diffuse_slice_end") == 20
    assert value(text, "diffuse_messages_received_total", group="gossip") == 1
    assert value(text, "diffuse_bytes_received_total", group="unknown") == 7
    assert value(text, "diffuse_bytes_sent_total", group="session") == 50
    assert value(text, "diffuse_pass_seconds_bucket", length="short", le="0.005") == 1
    assert value(text, "diffuse_pass_seconds_bucket", length="short", le="+Inf") == 2
    assert value(text, "diffuse_pass_seconds_count", length="long") == 1
    assert value(text, "diffuse_sessions_refused_total", reason="memory") == 2
    assert value(text, "diffuse_relay_refused_total", reason="busy") == 6
    assert value(text, "diffuse_neighbour_round_trip_seconds", neighbour="abcd1234") == 0.01
    assert value(text, "diffuse_gpu_busy_ratio", gpu="0") == 0.2
    assert value(text, "diffuse_links", way="direct") == 2
    models = [labels for name, labels in samples(text) if name == "diffuse_model_info"]
    assert dict(models[0])["model"] == 'od"d\\m\n'


def test_openmetrics_is_told_to_whoever_asks_for_it() -> None:
    asked = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = client(everything()).get("/metrics", headers=asked)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(open_families(answer.text))) > 40


def test_who_asks_again_and_again_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def source() -> Any:
        taken.append(1)
        return families(everything())

    monkeypatch.setattr(metrics, "KEPT_S", 60.0)
    there = TestClient(metrics_app(source, lambda: HEALTHY))
    with there:
        answers = {there.get("/metrics").text for _ in range(20)}
    assert (len(answers), len(taken)) == (1, 1)
    monkeypatch.setattr(metrics, "KEPT_S", 0.0)
    there.get("/metrics")
    assert len(taken) == 2


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "text/plain;version=x;escaping=y", "application/openmetrics-text;version=z"],
)
def test_whatever_is_accepted_one_of_two_formats_comes(accept: str) -> None:
    answer = client(everything()).get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    version = "1.0.0" if "openmetrics" in accept else "0.0.4"
    assert f"version={version}; charset=utf-8" in answer.headers["content-type"]


def test_nothing_is_told_twice_and_every_metric_says_what_it_is() -> None:
    text = client(everything()).get("/metrics").text
    found = list(text_string_to_metric_families(text))
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    for family in found:
        assert family.documentation
        keys = [(sample.name, *sorted(sample.labels.items())) for sample in family.samples]
        assert len(keys) == len(set(keys)), family.name


@pytest.mark.parametrize(
    ("path", "health", "status"),
    [
        ("/healthz", HEALTHY, 200),
        ("/healthz", Health(True, False, "loading"), 200),
        ("/healthz", Health(False, False, "the thread has ended"), 503),
        ("/readyz", HEALTHY, 200),
        ("/readyz", Health(True, False, "loading"), 503),
        ("/readyz", Health(False, False, "the thread has ended"), 503),
    ],
)
def test_health_tells_what_is_the_matter(path: str, health: Health, status: int) -> None:
    answer = client(everything(), health).get(path)
    assert answer.status_code == status
    told = answer.json()
    assert (told["alive"], told["ready"], told["reason"]) == (
        health.alive,
        health.ready,
        health.reason,
    )


def test_nothing_else_is_there_and_nothing_is_changed() -> None:
    there = client(everything())
    assert there.get("/").status_code == 404
    assert there.post("/metrics").status_code == 405


def exported() -> dict[str, set[str]]:
    """The names that queries may use, with the labels of each."""
    both = [*families(everything()), *of_server("1", 1.0, Lags(), 1, AnswerTally())]
    found: dict[str, set[str]] = {
        name: set()
        for name in (
            "process_resident_memory_bytes",
            "process_cpu_seconds_total",
            "process_open_fds",
            "up",
        )
    }
    for metric in both:
        for sample in metric.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries() -> list[str]:
    """Every query of the dashboard and the alerts."""
    place = files("diffuse_core.cli").joinpath("deploy")
    board: dict[str, Any] = json.loads(place.joinpath("grafana.json").read_text("utf-8"))
    found = [one["expr"] for panel in board["panels"] for one in panel.get("targets", ())]
    found += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    alerts = place.joinpath("alerts.yml").read_text("utf-8")
    return found + re.findall(r"^ +expr: (.+)$", alerts, re.MULTILINE)


def test_dashboard_and_alerts_ask_for_what_is_told() -> None:
    there = exported()
    asked = queries()
    assert len(asked) > 50
    for query in asked:
        used = re.findall(r"\b((?:diffuse|process)_\w+|up)\b(?:\{([^}]*)\})?", query)
        assert used, query
        for name, selector in used:
            assert name in there, query
            labels = set(re.findall(r"(\w+)=~?", selector)) - {"job", "instance"}
            assert labels <= there[name], query
        grouped = {
            word.strip() for by in re.findall(r"by \(([^)]*)\)", query) for word in by.split(",")
        }
        known = set().union(*(there[name] for name, _ in used)) | {"instance", "job", "le"}
        assert grouped <= known, query


def test_the_guide_names_what_is_told() -> None:
    text = files("diffuse_core.cli").joinpath("guides", "operations.md").read_text("utf-8")
    part = text.partition("under `diffuse_`")[2].partition("`diffuse service file")[0]
    there = {name.removesuffix("_bucket") for name in exported()}
    named = {word for word in re.findall(r"`([a-z_]+)`", part) if word not in ("_total",)}
    assert len(named) > 40
    assert {f"diffuse_{name}" for name in named} <= there


def test_the_dashboard_is_whole() -> None:
    board = json.loads(
        files("diffuse_core.cli").joinpath("deploy", "grafana.json").read_text("utf-8")
    )
    assert board["schemaVersion"] >= 39
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
