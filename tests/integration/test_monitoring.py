"""A real Prometheus scrapes a loaded proxy: every expression of deploy/ finds what it asks for.

Expressions that may be empty, and metrics that are not there, are listed here with the reason; both lists are checked.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.harness.certificates import Authority, common_name
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, fetch_request, produce_request, start_loads
from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = [pytest.mark.slow, pytest.mark.integration]

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
LOAD_S: Final = 75.0
FIRST_S: Final = 45.0
QUOTAS: Final = """\
quotas:
- entity: {client-id: slow}
  producer_byte_rate: 100000
  consumer_byte_rate: 100000
  proposed: {producer_byte_rate: 50000}
- {entity: {client-id: {default: true}}, producer_byte_rate: 1GiB, request_percentage: 1000}
"""

ONLY_WITH_OWNERS = "only with owners.group, which takes several instances (test_elected_owners.py)"
ONLY_IN_A_FAULT = "its series begins with the first fault"
ABSENT: Final = {
    "sluice_gssapi_unread_total": "only on a listener with sasl.kerberos",
    "sluice_internal_errors_total": ONLY_IN_A_FAULT,
    "sluice_authentications_total": "only with SASL; its series begins with the first login",
    "sluice_owned_brokers": ONLY_WITH_OWNERS,
    "sluice_owners_epoch": ONLY_WITH_OWNERS,
    "sluice_owners_heartbeat_age_seconds": ONLY_WITH_OWNERS,
    "sluice_owners_unheard_instances": ONLY_WITH_OWNERS,
    "sluice_quota_reload_error_info": ONLY_IN_A_FAULT,
    "sluice_quota_stand_in": "only while the store has not been read since the start",
    "sluice_usage_error_info": ONLY_IN_A_FAULT,
}
"""Metrics without a series in a proxy that is well and has one instance, no SASL."""
EMPTY: Final = {
    "New and closed, a second B": "no address has a connection_creation_rate here",
    "Closed for what they sent, and refused logins B": "no SASL here",
    "Brokers owned by each instance A": ONLY_WITH_OWNERS,
    "Faults: not ready, stale quotas, bugs, lost log lines A": "the proxy is ready",
    "Faults: not ready, stale quotas, bugs, lost log lines B": "the quotas are read",
    "Faults: not ready, stale quotas, bugs, lost log lines C": "there is no fault",
    "Faults: not ready, stale quotas, bugs, lost log lines D": "no line of the log is lost",
    "Why records cannot be shipped A": "they are shipped",
}
"""Queries of the dashboard without a result, by panel and letter."""


def dashboard() -> dict[str, str]:
    """Return the dashboard's expressions, by panel and letter, with all clusters and instances."""
    panels = json.loads((DEPLOY / "grafana" / "sluice.json").read_text())["panels"]
    return {
        f"{panel['title']} {target['refId']}": re.sub(r"\$(cluster|instance)\b", ".*", target["expr"])
        for panel in panels
        for target in panel.get("targets", ())
    }


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((DEPLOY / name).read_text())["groups"] for rule in group["rules"]]


class Prometheus:
    """The server, with the rules and the scrape configuration of deploy/, but every second."""

    def __init__(self, sluice: SluiceProcess, folder: Path) -> None:
        self.sluice = sluice
        self.address = f"{LOOPBACK}:{free_port()}"
        text = (DEPLOY / "prometheus.yml").read_text().replace("127.0.0.1:9404", str(sluice.admin))
        (folder / "prometheus.yml").write_text(text.replace("15s", "1s"))
        for name in ("alerts.yml", "recording-rules.yml"):
            (folder / name).write_text((DEPLOY / name).read_text().replace("interval: 15s", "interval: 1s"))
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
        ]
        self.program = Program("prometheus", command, folder / "prometheus.log")

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def is_ready(self) -> bool:
        try:
            return bool(self.query("sluice_ready"))
        except OSError:
            return False

    def without_result(self) -> set[str]:
        """Return the queries of the dashboard that have no result now."""
        return {name for name, expression in dashboard().items() if not self.query(expression)}


@pytest.fixture(scope="module")
def prometheus(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus in front of a proxy with two workers, of whose clients some are throttled."""
    folder = tmp_path_factory.mktemp("prometheus")
    topic = fresh_name("watched")
    cluster.create_topic(topic, leader=5)
    server = Authority(folder).issue("sluice", common_name("sluice"), [LOOPBACK])
    settings = {
        "workers": 2,
        "cluster": {"refresh": "1s", "state": str(folder / "state")},
        "usage": {"topic": {"name": fresh_name("usage")}, "interval": "200ms"},
    }
    tls = {"TLS": {"tls": {"certificate": str(server.certificate), "key": str(server.key)}}}
    with ExitStack() as stack:
        sluice = SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings, listeners=tls)
        stack.enter_context(sluice)
        address = sluice.broker_addresses[5]
        shapes = [
            Shape(address, produce_request(topic, "slow", 50_000)),
            Shape(address, fetch_request(topic, "slow", 50_000)),
            Shape(address, produce_request(topic, "free", 1000), obeys=True),
        ]
        running = Prometheus(sluice, folder)
        stack.enter_context(running.program)
        running.program.wait_until(running.is_ready, "scrape of the proxy", 20.0)
        with Connection(address) as stranger, pytest.raises(ConnectionError):
            stranger.exchange(b"GET / HTTP/1.1\r\n\r\n")
        start_loads(shapes, LOAD_S)
        with suppress(TimeoutError):  # the tests say what has no result
            wait_until(lambda: running.without_result() <= EMPTY.keys(), "results", FIRST_S)
        yield running


def test_every_query_of_the_dashboard_has_a_result_or_a_reason(prometheus: Prometheus) -> None:
    assert prometheus.without_result() == EMPTY.keys()
    (throttled, *_) = prometheus.query('sluice:throttled:rate1m{client_id="slow"}')
    assert throttled["metric"]["rule"] == "client-id=slow"
    assert throttled["metric"]["cluster"] == "demo"


def test_every_recording_rule_has_a_result(prometheus: Prometheus) -> None:
    assert [rule["record"] for rule in rules("recording-rules.yml") if not prometheus.query(rule["record"])] == []


def test_every_metric_that_is_asked_for_is_there_or_is_known_to_be_absent(prometheus: Prometheus) -> None:
    asked = [*dashboard().values(), *(rule["expr"] for rule in (*rules("alerts.yml"), *rules("recording-rules.yml")))]
    names = {name for text in asked for name in re.findall(r"(?<![\w:])(?:sluice|process)_\w+(?![\w:]*\()", text)}
    assert len(names) > 30
    absent = {name for name in names - {"sluice_quota_limit_"} if not prometheus.query(f"{{__name__={name!r}}}")}
    assert absent == ABSENT.keys()
    documented = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in ABSENT if f"`{name}`" not in documented] == []


def test_all_rules_are_evaluated_and_no_alert_fires_while_all_is_well(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert len(found) == len(rules("alerts.yml")) + len(rules("recording-rules.yml"))
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
    assert prometheus.query('ALERTS{alertstate="firing"}') == []


def test_every_path_of_the_page_of_alerts_is_one_of_the_admin_port(prometheus: Prometheus) -> None:
    paths = set(re.findall(r"http://ADMIN(/[\w/]+)", (ROOT / "docs" / "alerts.md").read_text()))
    assert {"/readyz", "/api/v1/owners"} <= paths
    assert {path: prometheus.sluice.get(path)[0] for path in paths} == dict.fromkeys(paths, 200)
