from pathlib import Path
from typing import cast

import pytest

from config.loader import load_settings
from protocol.locator import Endpoint
from proxy.brokers.broker import Broker
from proxy.edge.listeners import Listener
from proxy.edge.routes import Routes
from proxy.runtime import faults

CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:9092"]}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a.example, brokers: {"1": "1001"}, authentication: sasl}
  - {name: B, bind: "127.0.0.1:1100", advertise: b.example, brokers: {"1": "1101"}}
  - {name: C, bind: "127.0.0.1:1200", advertise: c.example, brokers: {"1": "1201"}, cluster: OTHER}
  - {name: D, bind: "127.0.0.1:1300", advertise: d.example, brokers: {"1": "1301"}, cluster: OTHER}
quotas: {store: {path: quotas.yaml}}
"""
LOGIN = """{bootstrap: ["127.0.0.1:9093"], sasl: {mechanism: PLAIN, username: sluice, password_file: password}}"""


class Opened:
    def __init__(self) -> None:
        self.brokers: list[int] = []

    def open_broker(self, node_id: int) -> None:
        self.brokers.append(node_id)


@pytest.fixture
def routes(tmp_path: Path) -> Routes:
    path = tmp_path / "sluice.yaml"
    path.write_text(CONFIG.replace("OTHER", LOGIN))
    (tmp_path / "password").write_text("secret")
    return Routes(load_settings(path))


def listeners(routes: Routes) -> list[Opened]:
    opened = []
    for settings in routes._settings.listeners:
        listener = Opened()
        routes.of(settings).listeners.append(cast("Listener", listener))
        opened.append(listener)
    return opened


def test_listeners_with_the_same_route_share_what_is_known_of_its_brokers(routes: Routes) -> None:
    a, b, c, d = listeners(routes)
    first, second = routes.clusters
    assert (first.name, second.name) == ("demo", "demo of listener C")
    first.hint([Endpoint(node_id=1, host=b"one", port=9092, id_offset=0, host_offset=0, port_offset=0)])
    assert (a.brokers, b.brokers, c.brokers, d.brokers) == ([1], [1], [], [])


def test_a_listener_that_fails_to_open_a_port_keeps_no_other_from_it(routes: Routes) -> None:
    a, b, _, _ = listeners(routes)
    first = next(iter(routes.clusters))
    before = faults.counts["open a broker's port"]
    a.brokers = cast("list[int]", None)
    first.hint([Endpoint(node_id=1, host=b"one", port=9092, id_offset=0, host_offset=0, port_offset=0)])
    assert b.brokers == [1]
    assert faults.counts["open a broker's port"] == before + 1


def test_owners_of_tokens_are_asked_for_where_there_is_a_login(routes: Routes) -> None:
    plain, with_login = (routes.of(routes._settings.listeners[number]) for number in (0, 2))
    assert plain.owners is None
    assert plain.owner_of("token", print) is None
    assert with_login.owners is not None


def test_a_broker_is_reachable_if_it_is_on_every_route(routes: Routes) -> None:
    listeners(routes)
    first, second = routes.clusters
    first.brokers = {1: Broker(1, "a", 1), 2: Broker(2, "b", 2)}
    second.brokers = {1: Broker(1, "c", 3, reachable=False), 3: Broker(3, "d", 4)}
    assert routes.reachable() == {1: False, 2: True, 3: True}
