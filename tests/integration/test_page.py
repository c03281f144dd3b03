"""The page in front of a real cluster: a real client is throttled, seen, limited for a time, and closed."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Connection, frame
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NODE_ID = 1
TOKEN = "0123456789abcdef"
QUOTAS = "quotas:\n  - {entity: {client-id: greedy}, producer_byte_rate: 10kB}\n"


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "workers"])
def sluice(
    request: pytest.FixtureRequest, cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    token_file = tmp_path_factory.mktemp("page") / "token"
    token_file.write_text(TOKEN)
    settings = {"admin": {"token_file": str(token_file)}, "workers": request.param}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=QUOTAS, settings=settings) as running:
        yield running


def post(sluice: SluiceProcess, path: str, fields: Mapping[str, str]) -> dict[str, object]:
    data = urllib.parse.urlencode(fields).encode()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    asked = urllib.request.Request(f"http://{sluice.admin}{path}", data, headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310
        said: dict[str, object] = json.load(answer)
        return said


def shows(sluice: SluiceProcess, path: str, *said: str) -> bool:
    status, text = sluice.get(path)
    assert status == 200, text
    return all(each in text for each in said)


def test_a_throttled_client_is_seen_limited_and_closed(sluice: SluiceProcess, cluster: KafkaCluster) -> None:
    topic = fresh_name("page")
    cluster.create_topic(topic, leader=NODE_ID)
    client = "/client?user=ANONYMOUS&client_id=greedy"
    with Connection(sluice.broker_addresses[NODE_ID]) as greedy:
        for _ in range(3):
            greedy.send(produce_request(topic, "greedy", 60_000))
        greedy.receive()
        wait_until(lambda: shows(sluice, "/", "client-id=greedy", "9.8 KiB/s"), "the throttled client")
        _, text = sluice.get("/")
        assert "No client is throttled." not in text
        assert shows(sluice, "/?q=GREEDY", "<bdi>greedy</bdi>")
        assert shows(sluice, client, "client-id=greedy", "wins", f"broker {NODE_ID}")
        assert shows(sluice, "/quotas", "client-id=greedy")
        asked = {"client_id": "greedy", "kind": "producer_byte_rate", "limit": "1GiB"}
        post(sluice, "/limits", asked | {"for": "1h"})
        wait_until(lambda: shows(sluice, "/", "No client is throttled."), "the temporary limit")
        assert shows(sluice, "/quotas", "Temporary limits", "1 GiB/s", "admin token")
        assert sluice.quotas_path.read_text() == QUOTAS
        post(sluice, "/limits", asked | {"for": "0s"})
        assert not shows(sluice, "/quotas", "Temporary limits")
        with Connection(sluice.broker_addresses[NODE_ID]) as other:
            other.exchange(frame(API_VERSIONS, 0, 7, "calm", b""))
            assert post(sluice, "/connections/close", {"user": "ANONYMOUS", "client_id": "greedy"}) == {"closed": 1}
            while not greedy.is_closed_by_peer():  # the answers in flight come first
                pass
            other.exchange(frame(API_VERSIONS, 0, 7, "calm", b""))
    assert sluice.logged("connections closed")
    assert len(sluice.logged("quota changed")) == 2
    assert not [line for line in sluice.logs() if line["event"] == "internal error"]


def test_page_event_stream_sends_live_events(sluice: SluiceProcess, tmp_path: Path) -> None:
    with urllib.request.urlopen(f"http://{sluice.admin}/events?page=overview", timeout=20) as stream:
        events = [stream.readline() for _ in range(4)]
    assert events[2:] == [b"event: live\n", events[3]]
    assert events[3].startswith(b"data: ")
