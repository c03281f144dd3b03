"""A producer over its quota, as the state API tells it, and each command of docs/api.md."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, SHORT_WINDOW_SAMPLES, fresh_name
from tests.integration.task_pages import Typist
from tests.integration.test_live import CLIENT_ID, QUOTAS, producing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LIMIT = 2**20


def items(sluice: SluiceProcess, path: str) -> list[dict[str, Any]]:
    status, text = sluice.get(f"/api/v1/{path}")
    assert status == 200, text
    found: list[dict[str, Any]] = json.loads(text)["items"]
    return found


def waits(sluice: SluiceProcess) -> dict[str, Any] | None:
    """Return the row of the producer's counter while one of its requests waits."""
    return next((each for each in items(sluice, f"throttled?q={CLIENT_ID}") if each["peers"] and each["owed_ms"]), None)


def test_state_api_shows_throttled_producer_with_rule_and_limit(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = fresh_name("state")
    cluster.create_topic(topic)
    settings = {"quotas": {"window": {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}}}
    with (
        SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings) as sluice,
        producing(sluice.bootstrap, topic),
    ):
        wait_until(lambda: waits(sluice) is not None, "a request that waits", timeout_s=60)
        wait_until(
            lambda: (row := waits(sluice)) is not None and row["wanted"] > 1.5 * LIMIT, "its demand", timeout_s=60
        )
        asked_at = datetime.now(UTC)
        row = waits(sluice) or items(sluice, "throttled")[0]
        assert (row["kind"], row["user"], row["client_id"]) == ("producer_byte_rate", None, CLIENT_ID)
        assert (row["rule"], row["limit"], row["mode"]) == (f"client-id={CLIENT_ID}", LIMIT, "enforce")
        assert row["broker"] in NODE_IDS
        assert row["wanted"] >= row["used"] > 0
        assert datetime.fromisoformat(row["until"]) > asked_at
        connected = {each["peer"]: each for each in items(sluice, "connections?limit=1000")}
        assert set(row["peers"]) <= connected.keys()
        assert connected[row["peers"][0]]["client_id"] == CLIENT_ID

        wait_until(
            lambda: items(sluice, f"clients?client_id={CLIENT_ID}")[0]["throttled_share_1m"] > 0.05,
            "a share of the last minute",
            timeout_s=60,
        )
        (client,) = items(sluice, f"clients?client_id={CLIENT_ID}")
        assert (client["rule"], client["limit"], client["kind"]) == (row["rule"], LIMIT, "producer_byte_rate")
        assert client["bytes_in_per_s"] > 0
        assert {each["node_id"] for each in items(sluice, "brokers")} == set(NODE_IDS)
        with Typist(tmp_path, {"127.0.0.1:9404": str(sluice.admin)}) as typist:
            wait_until(lambda: len(items(sluice, "throttled")), "a throttled client", timeout_s=60, equals=1)
            typist.type_page("api.md")
