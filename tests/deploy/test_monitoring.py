"""Alerts, recording rules, the dashboard, and docs/alerts.md: they are complete, and fit each other and the metrics."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from protocol.errors import Cause
from proxy.cli import cli

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
STRANGERS: Final = {
    *(Cause.NOT_KAFKA, Cause.BAD_HEADER, Cause.FRAME_TOO_SHORT, Cause.UNKNOWN_API),
    *(Cause.NOT_TLS, Cause.TLS_ON_PLAINTEXT, Cause.TLS_VERSION, Cause.TLS_CIPHER, Cause.TLS_HANDSHAKE),
    *(Cause.UNKNOWN_SNI, Cause.CLIENT_CERTIFICATE_MISSING, Cause.CLIENT_CERTIFICATE_INVALID),
    *(Cause.PROXY_PROTOCOL_NOT_ALLOWED, Cause.AUTHENTICATION_TIMEOUT, Cause.NOT_AUTHENTICATED),
    *(Cause.CONNECTIONS_PER_IP, Cause.CONNECTION_RATE_PER_IP, Cause.CONNECTIONS_BEFORE_REQUEST),
}
"""Causes that anybody can make, or that say that an address was refused."""
REFUSALS: Final = {Cause.PROTECTED_TOPIC, Cause.PROTECTED_GROUP, Cause.NOT_OWNER, Cause.NO_SNI}
"""Requests that are refused by design; clients are told where to go."""
OF_OTHER_ALERTS: Final = {Cause.MEMORY}
OF_BROKERS: Final = {
    *(Cause.CORRELATION_MISMATCH, Cause.UNEXPECTED_RESPONSE),
    *(Cause.OTHER_CLUSTER, Cause.OTHER_NODE),
}
"""Causes that only a broker can make: the alert takes every cause of theirs."""


def promtool(*words: str | Path) -> None:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([found, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((DEPLOY / name).read_text())["groups"] for rule in group["rules"]]


ALERTS: Final = {rule["alert"]: rule for rule in rules("alerts.yml")}
RECORDED: Final = {rule["record"]: rule["expr"] for rule in rules("recording-rules.yml")}
RULES: Final = ("alerts.yml", "recording-rules.yml", "broker-names.yml")


def test_prometheus_takes_the_scrape_configuration_and_the_rules() -> None:
    promtool("check", "config", "deploy/prometheus.yml")
    promtool("check", "rules", *(f"deploy/{name}" for name in RULES))


def test_each_alert_and_recording_rule_does_what_it_should() -> None:
    """Each fires for one instance, not before its time and not for another: tests/deploy/rules says for which."""
    promtool("test", "rules", *(f"tests/deploy/rules/{name}" for name in RULES))


def test_no_alert_and_no_recording_rule_is_without_a_test() -> None:
    alerts = yaml.safe_load((ROOT / "tests/deploy/rules/alerts.yml").read_text())["tests"]
    assert sorted(test["name"] for test in alerts) == sorted(ALERTS)
    assert all(f'alertname="{test["name"]}"' in str(test["promql_expr_test"]) for test in alerts)
    recorded = (ROOT / "tests/deploy/rules/recording-rules.yml").read_text()
    assert [name for name in RECORDED if f"{name}{{" not in recorded] == []


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert sorted(re.findall(r"^### (.*)$", page, re.MULTILINE)) == sorted(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_commands_of_the_page_are_commands_of_the_program() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    named = set(re.findall(r"`sluice ([a-z]+) ", page))
    assert {"check", "doctor"} <= named <= cli.commands.keys()


def test_strangers_and_refused_addresses_do_not_page() -> None:
    """A new cause has to be put on one side or the other."""
    alerting = re.search(r'side="client",\s*cause=~"([\w|]+)"', ALERTS["SluiceFramesRejected"]["expr"])
    assert alerting is not None
    causes = set(alerting[1].split("|"))
    others = STRANGERS | REFUSALS | OF_BROKERS | OF_OTHER_ALERTS
    assert causes | others == set(Cause)
    assert not causes & others


def test_dashboard_has_unique_panels_without_overlap() -> None:
    """What Grafana would not tell: panels that overlap, ids that occur twice, expressions of all clusters at once."""
    board = json.loads((DEPLOY / "grafana" / "sluice.json").read_text())
    panels = board["panels"]
    assert panels[0]["title"] == "Who is throttled now"
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "cluster", "instance"]
    for panel in panels:
        assert (panel["type"] == "row") or panel["datasource"]["uid"] == "${datasource}"
        for target in panel.get("targets", ()):
            assert 'cluster=~"$cluster", instance=~"$instance"' in target["expr"]
            assert target["refId"] in "ABCD"


def test_every_recording_rule_is_for_the_dashboard() -> None:
    shown = (DEPLOY / "grafana" / "sluice.json").read_text()
    needed = shown + str(RECORDED.values())
    assert [name for name in RECORDED if name not in needed] == []


def test_the_objects_for_the_operator_have_the_same_rules() -> None:
    [script] = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        ["sh", "-c", script.replace("kubectl apply -f -", "cat")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert {each["kind"] for each in objects} == {"PrometheusRule"}
    assert {each["metadata"]["name"]: each["spec"] for each in objects} == {
        f"sluice-{name}": yaml.safe_load((DEPLOY / f"{name}.yml").read_text()) for name in ("alerts", "recording-rules")
    }
