"""Files for containers and monitoring: each is what it says, and Prometheus takes the alerts."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from diffuse_core.cli import cli
from diffuse_core.cli.service import KINDS

if TYPE_CHECKING:
    from pathlib import Path

MATCHING = r"(?:on|ignoring)\s*\([^)]*\)\s*(?:group_(?:left|right)\s*(?:\([^)]*\))?)?"
NUMBER = r"[\d.]+(?:e[+-]?\d+)?"


def run(*words: str) -> str:
    """What `diffuse service` prints."""
    return CliRunner().invoke(cli, ["service", *words], catch_exceptions=False).stdout


def alerts() -> list[dict[str, Any]]:
    yaml: Any = pytest.importorskip("yaml")
    found: list[dict[str, Any]] = yaml.safe_load(run("file", "alerts"))["groups"][0]["rules"]
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_files_for_containers_and_monitoring_come_along(kind: str) -> None:
    text = run("file", kind)
    assert len(text) > 300
    if kind == "container":
        assert "USER 10001:10001" in text
        assert "groupadd --system --gid 10001 diffuse" in text
        assert "STOPSIGNAL SIGTERM" in text


def test_the_hosts_of_compose_hold_the_whole_demo_model() -> None:
    """As `diffuse plan` tells for it in bf16: 54 MiB for an end, 9.8 for each of 30 layers."""
    yaml: Any = pytest.importorskip("yaml")
    services = yaml.safe_load(run("file", "compose"))["services"].values()
    hosts = [one["command"] for one in services if one.get("command", [""])[0] == "host"]
    layers = 0
    for words in hosts:
        given = dict(zip(words[1::2], words[2::2], strict=True))
        assert given["--dtype"] == "bf16", "memory is reckoned for it"
        layers += int((int(given["--memory"].removesuffix("MiB")) - 54) / 9.8)
    assert layers >= 30


@pytest.mark.parametrize("kind", ["compose", "prometheus", "alerts"])
def test_they_are_what_they_say(kind: str) -> None:
    yaml: Any = pytest.importorskip("yaml")
    found = yaml.safe_load(run("file", kind))
    if kind == "compose":
        commands = cli.commands
        for name, one in found["services"].items():
            if one["image"] != "diffuse":
                continue
            words = [str(word) for word in one["command"]]
            # As it would be parsed there, and not run.
            commands[words[0]].make_context(words[0], words[1:]).close()
            assert {volume.partition(":")[0] for volume in one["volumes"]} <= set(
                found["volumes"]
            ), name
    elif kind == "prometheus":
        assert found["scrape_configs"][0]["job_name"] == "diffuse"
    else:
        rules = found["groups"][0]["rules"]
        assert all({"alert", "expr", "labels", "annotations"} <= set(rule) for rule in rules)
        assert all(rule["labels"]["severity"] in ("page", "ticket") for rule in rules)


def test_only_vectors_are_matched_by_labels() -> None:
    """Prometheus loads none of the rules of a file where one matches a number by its labels."""
    number = re.compile(
        rf"(?<![\w.\"]){NUMBER}\s*[-+*/<>=!]+\s*{MATCHING}|{MATCHING}\s*{NUMBER}\b"
    )
    assert number.search("a > 0.2 * ignoring (x) b")
    assert number.search("a / on (x) 2")
    assert not number.search("a / ignoring (x) b > 0.2")
    for rule in alerts():
        assert number.search(rule["expr"]) is None, rule["alert"]


def test_a_model_that_all_hosts_left_is_told_too() -> None:
    """It is Incomplete for a minute only, after which nobody knows of it any more."""
    asked = {rule["alert"]: rule["expr"] for rule in alerts()}
    assert "Fragile|Robust" in asked["DiffuseNothingServed"]
    assert "max_over_time" in asked["DiffuseModelGone"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no Prometheus here")
@pytest.mark.parametrize(("kind", "verb"), [("alerts", "rules"), ("prometheus", "config")])
def test_prometheus_takes_it(kind: str, verb: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(run("file", "alerts"))
    file = tmp_path / KINDS[kind]
    file.write_text(run("file", kind))
    command = ["promtool", "check", verb, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert done.returncode == 0, done.stderr
