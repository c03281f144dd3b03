"""The group of instances on a cluster whose authorizer decides who may join it, and clients that want to."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from protocol.groups import GroupError, heartbeat, join_group, read_joined
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name
from tests.integration.test_cluster_store_acl import MECHANISM, PASSWORD, TIMEOUT_S, guarded

__all__ = ["guarded"]

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def acls(guarded: KafkaCluster) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=guarded.bootstrap.split(","))) as admin:
        yield admin


def may_read(group: str) -> ACL:
    pattern = ResourcePattern(ResourceType.GROUP, group)
    return ACL("User:proxy", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)


def test_read_on_the_group_is_needed_and_enough(guarded: KafkaCluster, acls: Any, tmp_path: Path) -> None:
    group = fresh_name("owners")
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "secret").write_text("a secret of all instances")
    login = {"mechanism": MECHANISM, "username": "proxy", "password_file": str(tmp_path / "password")}
    settings = {
        "cluster": {"bootstrap": guarded.bootstrap_of("SASL").split(","), "sasl": login},
        "owners": {"instance": "edge-1", "group": group, "secret_file": str(tmp_path / "secret")},
    }
    plain = {"cluster": {"bootstrap": guarded.bootstrap.split(",")}}
    sluice = SluiceProcess(guarded.bootstrap, guarded.node_ids, settings=settings, listeners={"ANY": plain})
    with closing(sluice):
        sluice.launch()
        fix = f"kafka-acls --add --allow-principal User:proxy --operation Read --group {group}"
        wait_until(lambda: fix in sluice.get("/readyz")[1], "it says what is missing", TIMEOUT_S)
        assert sluice.get("/readyz")[0] == 503

        acls.create_acls([may_read(group)])
        wait_until(sluice.is_ready, "it is a member", TIMEOUT_S)
        assert json.loads(sluice.get("/api/v1/owners")[1])["state"] == "member"
        (address,) = sluice.listeners["ANY"].brokers.values()
        _refuses_members(sluice, address, group)

        acls.delete_acls([may_read(group)])
        wait_until(lambda: fix in sluice.get("/readyz")[1], "it owns nothing any more", TIMEOUT_S)
        assert json.loads(sluice.get("/api/v1/owners")[1])["state"] == "fenced"

        acls.create_acls([may_read(group)])
        wait_until(sluice.is_ready, "it is a member again", TIMEOUT_S)


def _refuses_members(sluice: SluiceProcess, address: Any, group: str) -> None:
    """A client may join any group but that of the instances."""
    for name, refused in ((f"{group}-other", False), (group, True)):
        joining = join_group(name, "", session_ms=6000, protocol_type="sluice", protocols={"owners-2": b""})
        with Connection(address) as connection:
            if refused:
                connection.send(joining.frame("stranger", 1))
                assert connection.is_closed_by_peer()
            else:
                found = read_joined(connection.exchange(joining.frame("stranger", 1)))
                assert found.error_code == GroupError.MEMBER_ID_REQUIRED
    with Connection(address) as connection:
        connection.send(heartbeat(group, 1, "m").frame("stranger", 1))
        assert connection.is_closed_by_peer()
    assert sluice.metrics().value("sluice_frames_rejected_total", cause="protected_group") == 2
