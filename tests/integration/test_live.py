"""A producer that is over its quota, as an operator sees it: docs/who-is-throttled.md, `top`, `--watch` and the log."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, SHORT_WINDOW_SAMPLES, fresh_name
from tests.integration.task_pages import Typist

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_SLUICE = str(Path(sys.executable).parent / "sluice")
CLIENT_ID = "batch-import"
QUOTAS = f"quotas:\n  - {{entity: {{client-id: {CLIENT_ID}}}, producer_byte_rate: 1MiB}}\n"
SETTINGS = {
    "quotas": {"window": {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}},
    "log": {"throttles": True},
}


@contextmanager
def producing(bootstrap: str, topic: str) -> Iterator[None]:
    """Send as fast as the proxy takes it, as a client with that client-id."""
    over = Event()

    def run() -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "queue.buffering.max.messages": 500}
        )
        while not over.is_set():
            try:
                producer.produce(topic, bytes(10_000))
            except BufferError:
                producer.poll(0.1)
        producer.purge()
        producer.flush(5)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def throttled(sluice: SluiceProcess) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(sluice.get("/api/v1/throttled")[1])["items"]
    return items


def events(sluice: SluiceProcess, name: str) -> list[dict[str, Any]]:
    return [line for line in sluice.logs() if line["event"] == f"throttle {name}"]


def command(*arguments: str) -> str:
    return subprocess.run([_SLUICE, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


def look(sluice: SluiceProcess, folder: Path, url: str, workers: int) -> None:
    """Type the page and ``top`` while the client is throttled."""
    wait_until(lambda: len(throttled(sluice)) > 0, "a throttled client", timeout_s=60)
    with Typist(folder, {"127.0.0.1:9404": str(sluice.admin)}) as typist:
        typist.type_page("who-is-throttled.md")
    pages = command("top", "--once", "--admin", url).split("\n\n")
    assert [page.splitlines()[0][2:] for page in pages] == ["throttled", "clients", "brokers", "workers"]
    assert f"\t{CLIENT_ID}\t" in pages[1]
    assert len(pages[2].splitlines()) == 2 + len(NODE_IDS)
    assert len(pages[3].splitlines()) == 2 + workers
    wait_until(lambda: len(events(sluice, "started")) > 0, "the log to say so", timeout_s=30)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_throttled_client_is_shown_while_throttled_and_logged(
    cluster: KafkaCluster, tmp_path: Path, workers: int
) -> None:
    topic = fresh_name("live")
    cluster.create_topic(topic)
    with SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings={**SETTINGS, "workers": workers}) as sluice:
        config = tmp_path / "sluice.yaml"
        config.write_text(sluice.config_path.read_text())
        url = f"http://{sluice.admin}"
        watching = [_SLUICE, "throttled", "--admin", url, "--watch", "-o", "json"]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as watch:
            try:
                with producing(sluice.bootstrap, topic):
                    look(sluice, tmp_path, url, workers)
                wait_until(lambda: len(events(sluice, "ended")) > 0, "the end of the throttle", timeout_s=120)
                assert watch.stdout is not None
                watched = [json.loads(watch.stdout.readline()) for _ in range(2)]
            finally:
                watch.terminate()
        assert [(each["event"], each["client_id"]) for each in watched] == [
            ("started", CLIENT_ID),
            ("ended", CLIENT_ID),
        ]
        (started,), (ended,) = events(sluice, "started"), events(sluice, "ended")
        assert (started["client_id"], started["rule"], started["limit"]) == (CLIENT_ID, f"client-id={CLIENT_ID}", 2**20)
        assert ended["throttle_time_ms"] > 0
        assert ended["broker"] == started["broker"]
