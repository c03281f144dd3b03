"""The ZooKeeper store against a real server: what is its own."""

import json
import math
import re
import signal
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from config.stores import ZooKeeperSasl
from config.stores import ZooKeeperStore as Settings
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration
from quotas.stores.base import UnreadableError, UnwritableError
from quotas.stores.zookeeper.client import UnreachableError
from quotas.stores.zookeeper.store import ZooKeeperStore
from quotas.stores.zookeeper.tree import path_of
from tests.harness.jars import ZOOKEEPER_TOOLS
from tests.harness.polling import wait_until
from tests.harness.zookeeper import ZooKeeper
from tests.quotas.stores.alter_contract import change
from tests.quotas.stores.zookeeper import QUIET, ZooKeeperHarness

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RATE, PERCENTAGE = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE
CONNECTIONS = QuotaKind.CONNECTION_CREATION_RATE
ALICE = Entity(user="alice")


def test_notifications_of_version_1_and_2_are_read(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}})
    store.load()
    store.write(
        "/config/clients/app",
        _node(producer_byte_rate="5"),
        '{"version":1,"entity_type":"clients","entity_name":"app"}',
    )
    assert store.noticed()
    assert store.load().limits == {ALICE: {RATE: 1.0}, Entity(client_id="app"): {RATE: 5.0}}
    for nothing in ("not json", "", '{"version":2,"entity_path":"topics/t"}'):
        store.notify(nothing)
    assert store.noticed()
    assert store.store.load(0).warnings == []
    wrong = ["[]", '{"version":3,"entity_path":"users/a"}', '{"version":2}', '{"version":2,"entity_path":"nowhere/a"}']
    for text in wrong:
        store.notify(text)
    assert store.noticed()
    loaded = store.store.load(0)
    assert len(loaded.warnings) == len(wrong)
    assert all("config_change_" in warning.path for warning in loaded.warnings)
    assert loaded.policy.limits == {ALICE: {RATE: 1.0}, Entity(client_id="app"): {RATE: 5.0}}


def test_a_notification_is_of_one_entity(store: ZooKeeperHarness) -> None:
    """As at a broker: what was changed without one stays as it was known, until somebody asks for all."""
    store.put({ALICE: {RATE: 1.0}, Entity("alice", "app"): {RATE: 2.0}})
    store.load()
    quietly = Entity("alice", "app")
    store.client.set(f"{store.chroot}{path_of(quietly)}", json.dumps(_node(producer_byte_rate="9")).encode())
    store.write(path_of(ALICE), _node(producer_byte_rate="3"))
    assert store.noticed()
    assert store.load().limits == {ALICE: {RATE: 3.0}, quietly: {RATE: 2.0}}
    assert store.load().limits == {ALICE: {RATE: 3.0}, quietly: {RATE: 9.0}}  # nobody told: asked for


def test_deleted_node_is_noticed_by_its_notification_alone(store: ZooKeeperHarness) -> None:
    both = {ALICE: {RATE: 1.0}, Entity(client_id="app"): {RATE: 2.0}}
    store.put(both)
    store.load()
    store.client.delete(f"{store.chroot}{path_of(ALICE)}")
    assert not store.noticed()
    store.notify('{"version":2,"entity_path":"clients/app"}')
    assert store.noticed()
    assert store.load().limits == both
    store.notify('{"version":2,"entity_path":"users/alice"}')
    assert store.noticed()
    assert store.load().limits == {Entity(client_id="app"): {RATE: 2.0}}


DIGITS = "9" * 5000
BAD_NODES = [
    {"config": {"producer_byte_rate": DIGITS}},
    {"config": {"producer_byte_rate": f"-{DIGITS}"}},
    {"config": {"producer_byte_rate": "9" * 900_000 + "x"}},
    {"config": {"request_percentage": "9" * 900_000 + "x"}},
    {"config": {"request_percentage": "NaN"}},
    {"config": {"request_percentage": "0x1p3"}},
    {"config": {"producer_byte_rate": "٣"}},
    {"config": {"producer_byte_rate": "1e3"}},
    {"config": {"producer_byte_rate": True}},
    {"config": {"producer_byte_rate": None}},
    {"config": {"producer_byte_rate": {}}},
    {"config": {"x" * 100_000: 5}},
    {"config": None},
    5,
    b'{"version":1,"config":{"producer_byte_rate":' + DIGITS.encode() + b"}}",
    b'{"version":' + DIGITS.encode() + b',"config":{}}',
    b'{"config":{"producer_byte_rate":NaN}}',
    b'{"config":{"producer_byte_rate":"\\ud800"}}',
    b"[" * 100_000,
    b'{"config":' * 50_000,
    b"\xed\xa0\x80",
    b"\0" * 10,
]
GOOD_NODES: list[tuple[str, dict[str, str], float]] = [
    ("zeros", {"producer_byte_rate": "0" * 5000 + "7"}, 7.0),
    ("infinite", {"request_percentage": DIGITS}, math.inf),
    ("exponent", {"request_percentage": f"1e-{DIGITS}1"}, 0.0),
]


def test_bad_node_is_warned_of_and_the_others_are_read(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}, Entity("alice", "app"): {RATE: 2.0}, Entity(ip="10.0.0.1"): {CONNECTIONS: 3.0}})
    good = store.load().limits
    bad = [f"/config/users/bad{number}" for number in range(len(BAD_NODES))]
    for path, value in zip(bad, BAD_NODES, strict=True):
        store.write(path, value)
    for name, config, _ in GOOD_NODES:
        store.write(f"/config/users/{name}", {"config": config})
    names = [f"/config/{each}" for each in ("users/%zz", "ips/9" + DIGITS, "ips/%ED%A0%80", "clients/%")]
    for path in names:
        store.write(path, {"config": {}})
    assert store.noticed()
    for _ in range(2):  # by notifications, and when all is read
        loaded = store.store.load(0)
        limits = dict(loaded.policy.limits)
        for name, config, limit in GOOD_NODES:
            (kind,) = config
            assert limits.pop(Entity(user=name)) == {QuotaKind(kind): limit}
        assert limits == good
        assert {each.problem.path.rstrip("…") for each in loaded.unread} == {*bad, *(path[:300] for path in names)}
        assert all(len(str(each)) < 700 for each in loaded.warnings)
        assert store.store.staleness_ms(5) == 0
    store.write(path_of(ALICE), _node(producer_byte_rate="8"))
    assert store.noticed()
    assert store.store.load(0).policy.limits[ALICE] == {RATE: 8.0}, "and changes go on to be seen"


BAD_NOTIFICATIONS = [
    b'{"version":' + DIGITS.encode() + b',"entity_path":"users/a"}',
    b'{"version":1' + b"0" * 300 + b',"entity_path":"users/a"}',
    b'{"version":1e5000,"entity_path":"users/a"}',
    b'{"version":2,"entity_path":"\\ud800"}',
    b'{"version":2,"entity_path":"users/a\\u0000b"}',
    b'{"version":2,"entity_path":"users/"}',
    b'{"version":2,"entity_path":"users//clients/"}',
    b'{"version":2,"entity_path":"users/../../x"}',
    b'{"version":2,"entity_path":"ips/%ED%A0%80"}',
    b'{"version":2,"entity_path":"ips/' + DIGITS.encode() + b'"}',
    b'{"version":2,"entity_path":"users/' + b"a" * 1_000_000 + b'"}',
    b'{"version":1,"entity_type":"clients","entity_name":"' + b"a" * 1_000_000 + b'"}',
    b"[" * 100_000,
    b'{"version":2,"entity_path":' * 30_000,
    b"\xff" * 1000,
]


def test_bad_notification_is_warned_of_and_the_others_are_read(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}})
    store.load()
    for data in BAD_NOTIFICATIONS:
        store.client.create(f"{store.chroot}/config/changes/config_change_", data, sequence=True)
    for number in ("9" * 5000, "٣" * 10, "2147483647", "00000000001", "", "x", "-0000000001"):
        store.client.create(f"{store.chroot}/config/changes/config_change_{number}", b"{}")
    store.write(path_of(ALICE), _node(producer_byte_rate="8"))
    assert store.noticed()
    assert store.store.load(0).policy.limits == {ALICE: {RATE: 8.0}}
    for limit in (9.0, 10.0):
        store.write(path_of(ALICE), _node(producer_byte_rate=f"{limit:.0f}"))
        assert store.noticed()
        loaded = store.store.load(0)
        assert loaded.policy.limits == {ALICE: {RATE: limit}}, "and changes go on to be seen"
    told = [each.path for each in loaded.warnings]
    assert any(path.startswith("/config/changes/config_change_999") for path in told)
    assert all(len(str(each)) < 700 for each in loaded.warnings)
    assert store.store.staleness_ms(5) == 0


def test_names_as_long_as_kafka_has_them_are_read_in_several_requests(store: ZooKeeperHarness) -> None:
    """Together they are longer than ZooKeeper takes a request for."""
    store.put({})
    for number in range(150):
        path = f"{store.chroot}/config/users/{number}{'n' * 8000}"
        store.client.create(path, json.dumps({"config": {"producer_byte_rate": f"{number + 1}"}}).encode())
    limits = store.load().limits
    assert sorted(each[RATE] for each in limits.values()) == [number + 1 for number in range(150)]


@pytest.mark.parametrize(
    "broken",
    [
        b"not json",
        b"[]",
        b'{"version":1,"config":[]}',
        b'{"version":1,"config":{"producer_byte_rate":5}}',
        b'{"version":1,"config":{"producer_byte_rate":"5","consumer_byte_rate":"1.5"}}',
        b"\xff\xfe",
    ],
)
def test_broken_node_keeps_its_last_quota_in_force(store: ZooKeeperHarness, broken: bytes) -> None:
    store.put({ALICE: {RATE: 1.0}, Entity(user="bob"): {RATE: 2.0}})
    store.load()
    store.write(path_of(ALICE), broken)
    assert store.noticed()
    for _ in range(2):  # by the notification, and when all is read
        loaded = store.store.load(0)
        assert loaded.policy.limits == {ALICE: {RATE: 1.0}, Entity(user="bob"): {RATE: 2.0}}
        [warning] = loaded.warnings
        assert warning.path == "/config/users/alice"
        assert "its previous limits stay in force" in warning.message
        assert [(each.problem, each.entity) for each in loaded.unread] == [(warning, ALICE)]
    [outcome] = store.store.alter(Alteration([change(ALICE, {RATE: 5.0})], "test"))
    assert outcome.refused is not None
    assert outcome.refused.field == "/config/users/alice"
    store.write(path_of(ALICE), _node(producer_byte_rate="7"))
    assert store.noticed()
    loaded = store.store.load(0)
    assert (loaded.warnings, loaded.unread) == ([], [])
    assert store.load().limits[ALICE] == {RATE: 7.0}


def test_credentials_survive_and_are_nowhere_to_be_seen(
    store: ZooKeeperHarness, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "salt=czNjcjN0,stored_key=czNjcjN0,server_key=czNjcjN0,iterations=4096"
    caplog.set_level(0)
    store.put({})
    store.write(
        path_of(ALICE), {"version": 1, "config": {"SCRAM-SHA-256": secret, "producer_byte_rate": "1", "x": "y"}}
    )
    assert store.noticed()
    loaded = store.store.load(0)
    assert loaded.policy.limits == {ALICE: {RATE: 1.0}}
    assert [warning.message for warning in loaded.warnings] == ["is no quota and ignored: x"]
    store.store.alter(Alteration([change(ALICE, {RATE: None, PERCENTAGE: 12.5})], "test"))
    assert store.read(path_of(ALICE)) == {"SCRAM-SHA-256": secret, "x": "y", "request_percentage": "12.5"}
    store.store.alter(Alteration([change(ALICE, {PERCENTAGE: None})], "test"))
    assert store.read(path_of(ALICE)) == {"SCRAM-SHA-256": secret, "x": "y"}
    store.write(path_of(ALICE), {"version": 1, "config": {"SCRAM-SHA-256": secret, "producer_byte_rate": 1}})
    assert store.noticed()
    assert "czNjcjN0" not in caplog.text + repr(store.store.load(0))


def test_alter_removes_nodes_left_without_quotas(store: ZooKeeperHarness) -> None:
    store.put({})
    pair, other = Entity("alice", "app"), Entity("alice", Default.DEFAULT)
    for entities in ([pair], [pair, other], [pair, ALICE], [pair, other, ALICE]):
        store.store.alter(Alteration([change(entity, {RATE: 1.0}) for entity in entities], "test"))
        assert set(store.load().limits) == {*entities}
        for entity in entities:
            store.store.alter(Alteration([change(entity, {RATE: None})], "test"))
        assert not store.exists("/config/users/alice")
        store.store.alter(Alteration([change(entity, {RATE: 1.0}) for entity in entities], "test"))
        store.store.alter(Alteration([change(entity, {RATE: None}) for entity in entities], "test"))
        assert not store.exists("/config/users/alice")
        assert store.load().limits == {}


def test_every_write_is_announced(store: ZooKeeperHarness) -> None:
    store.put({})
    store.load()
    other = ZooKeeperStore(Settings(connect=f"{store.server.connect}{store.chroot}"))
    try:
        other.load(0)
        changes = [change(ALICE, {RATE: 1.0}), change(Entity(Default.DEFAULT, "a b"), {PERCENTAGE: 50.0})]
        store.store.alter(Alteration(changes, "test"))
        wait_until(other.changed)
        assert other.load(0).policy.limits == store.load().limits
    finally:
        other.close()
    assert store.read("/config/users/<default>/clients/a%20b") == {"request_percentage": "50.0"}
    assert store.read("/config/users/alice") == {"producer_byte_rate": "1"}


def test_a_change_that_an_alteration_has_read_is_still_told(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}})
    store.load()
    store.write(path_of(ALICE), _node(producer_byte_rate="2"))
    assert store.noticed()
    store.store.alter(Alteration([change(Entity(user="bob"), {RATE: 1.0})], "test", validate_only=True))
    assert store.noticed()
    assert store.load().limits == {ALICE: {RATE: 2.0}}


def test_zero_byte_rate_is_unlimited_and_zero_percentage_is_kept(store: ZooKeeperHarness) -> None:
    store.put({})
    store.write(path_of(ALICE), _node(producer_byte_rate="0", request_percentage="0"))
    assert store.load().limits == {ALICE: {RATE: math.inf, PERCENTAGE: 0.0}}


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_have_no_place_are_refused(store: ZooKeeperHarness, name: str) -> None:
    store.put({})
    [refused, made] = store.store.alter(
        Alteration([change(Entity(user=name), {RATE: 1.0}), change(ALICE, {RATE: 1.0})], "test")
    )
    assert refused.refused is not None
    assert made.refused is None
    assert store.load().limits == {ALICE: {RATE: 1.0}}


def test_missing_tree_is_never_read_as_no_quotas(server: ZooKeeper, store: ZooKeeperHarness) -> None:
    elsewhere = ZooKeeperStore(Settings(connect=f"{server.connect}/nowhere"))
    try:
        for ask in (lambda: elsewhere.load(0), lambda: elsewhere.alter(Alteration([change(ALICE, {RATE: 1.0})], "t"))):
            with pytest.raises(UnreadableError, match=r"/config: there is no Kafka tree; does quotas\.store\.connect"):
                ask()
    finally:
        elsewhere.close()


@pytest.mark.parametrize(
    "order",
    [
        ["changes", "users", "clients", "ips", ""],  # as kazoo deletes a tree, or zkCli: from the leaves on
        ["users", "clients", "ips", "changes", ""],
        ["clients", "changes", "ips", "users", ""],
    ],
)
def test_deleted_tree_is_never_read_as_no_quotas(store: ZooKeeperHarness, order: list[str]) -> None:
    """Whatever of it is read meanwhile."""
    quotas = {ALICE: {RATE: 1.0}, Entity(client_id="app"): {RATE: 2.0}}
    store.put(quotas)
    assert store.load().limits == quotas
    for top in order:
        store.client.delete(f"{store.chroot}/config/{top}".rstrip("/"), recursive=True)
        if store.noticed() or top == "":
            read = _limits_or_failure(store)
            # A late notice may be that of the change before: then only its entity was read.
            assert (read == quotas and top) or re.search(r": is gone|/config: there is no Kafka tree", str(read))
    for top in ("users", "clients", "ips", "changes"):
        store.client.ensure_path(f"{store.chroot}/config/{top}")
    store.write(path_of(ALICE), _node(producer_byte_rate="3"))
    assert any(store.noticed() for _ in range(20))
    assert store.load().limits == {ALICE: {RATE: 3.0}}


def test_node_without_read_acl_is_never_read_as_no_quotas(store: ZooKeeperHarness) -> None:
    """And once it is allowed, nobody has to tell: it is tried again."""
    store.put({ALICE: {RATE: 1.0}})
    node = f"{store.chroot}/config/users/alice"
    store.client.add_auth("digest", "broker:pw")
    store.client.set_acls(node, [make_digest_acl("broker", "pw", all=True)])
    with pytest.raises(UnreadableError, match="/config/users/alice: may not be read; let the user"):
        store.load()
    with pytest.raises(UnreadableError):
        store.store.alter(Alteration([change(Entity(user="bob"), {RATE: 1.0})], "test"))
    store.client.set_acls(node, [*OPEN_ACL_UNSAFE])
    assert any(store.noticed() for _ in range(4))
    assert store.load().limits == {ALICE: {RATE: 1.0}}


def test_alter_of_a_read_only_node_writes_nothing(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}})
    store.client.set_acls(f"{store.chroot}/config/users/alice", [*READ_ACL_UNSAFE])
    with pytest.raises(UnwritableError, match="does not let this user write"):
        store.store.alter(Alteration([change(Entity(user="bob"), {RATE: 1.0}), change(ALICE, {RATE: 2.0})], "test"))
    assert store.load().limits == {ALICE: {RATE: 1.0}}


def test_quotas_changed_during_a_lost_session_are_read_again(store: ZooKeeperHarness) -> None:
    """Everything is read again, with its notifications gone."""
    store.put({ALICE: {RATE: 1.0}, Entity(user="bob"): {RATE: 2.0}})
    store.load()
    store.server.crash()
    assert store.noticed()
    with pytest.raises(UnreadableError, match="no server answered within 4 s"):
        store.store.load(1000)
    assert store.store.staleness_ms(3000) == 2000
    store.bring_back()
    store.write(path_of(ALICE), _node(producer_byte_rate="5"))
    store.client.delete(f"{store.chroot}/config/users/bob")
    for name in store.client.get_children(f"{store.chroot}/config/changes"):
        store.client.delete(f"{store.chroot}/config/changes/{name}")
    assert any(store.noticed() for _ in range(20))
    wait_until(partial(_limits_or_failure, store), equals={ALICE: {RATE: 5.0}})
    assert store.store.staleness_ms(9000) == 0


def test_silent_server_is_an_error_until_it_answers(store: ZooKeeperHarness) -> None:
    store.put({ALICE: {RATE: 1.0}})
    store.load()
    assert store.server.program is not None
    store.server.program.signal(signal.SIGSTOP)
    try:
        with pytest.raises(UnreadableError, match=r"the connection failed while quotas were read|no server answered"):
            store.load()
    finally:
        store.server.program.signal(signal.SIGCONT)
    assert any(store.noticed() for _ in range(20))
    wait_until(partial(_limits_or_failure, store), equals={ALICE: {RATE: 1.0}})


def test_server_without_multi_read_loads_and_alters_quotas() -> None:
    """3.5, which came with Kafka 2.8: it refuses the first one and ends the connection."""
    with ZooKeeper(of_kafka=ZOOKEEPER_TOOLS) as server:
        store = ZooKeeperHarness(server, "/old")
        try:
            quotas = {ALICE: {RATE: 1.0}, Entity("alice", "app"): {RATE: 2.0}, Entity(client_id="app"): {RATE: 3.0}}
            store.put(quotas)
            assert store.load().limits == quotas
            store.put({ALICE: {RATE: 4.0}})
            assert store.noticed()
            assert store.load().limits == {ALICE: {RATE: 4.0}}
            store.store.alter(Alteration([change(ALICE, {RATE: None}), change(Entity("b", "c"), {RATE: 5.0})], "test"))
            assert store.load().limits == {Entity("b", "c"): {RATE: 5.0}}
        finally:
            store.close()


def test_sasl_login_and_acl_work_as_for_brokers(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_broker="secret" user_other="pw"; };'
    )
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "other").write_text("pw")
    (tmp_path / "wrong").write_text("wrong")

    def store_of(user: str, password: str) -> ZooKeeperStore:
        sasl = ZooKeeperSasl(username=user, password_file=tmp_path / password)
        store = ZooKeeperStore(Settings(connect=running.connect, sasl=sasl, set_acl=True))
        stack.callback(store.close)
        return store

    option = f"-Djava.security.auth.login.config={jaas}"
    with ZooKeeper(properties=provider, java_options=(option,)) as running, ExitStack() as stack:
        client = KazooClient(hosts=running.connect, logger=QUIET)
        stack.callback(client.close)
        stack.callback(client.stop)
        client.start()
        client.ensure_path("/config/changes")
        changes = [change(ALICE, {RATE: 1.0}), change(Entity(client_id="app"), {RATE: 2.0})]
        store_of("broker", "secret").alter(Alteration(changes, "test"))
        assert len(store_of("broker", "secret").load(0).policy.limits) == 2
        with pytest.raises(UnreadableError, match="/config/users: may not be read"):
            store_of("other", "other").load(0)
        assert [acl.id.scheme for acl in client.get_acls("/config/clients/app")[0]] == ["sasl", "world"]
        for is_asked_late in (False, True):
            (tmp_path / "wrong").write_text("wrong")
            wrong = store_of("broker", "wrong")
            _see_refusal(wrong, is_asked_late=is_asked_late)
            (tmp_path / "wrong").write_text("secret")
            wait_until(partial(_said, wrong), equals="2 limits")


def _see_refusal(store: ZooKeeperStore, *, is_asked_late: bool) -> None:
    """Wait until the refusal is named: the client closes itself before or after the first question."""
    if is_asked_late:
        with suppress(UnreachableError):
            store._connection.client()
        wait_until(lambda: store._connection._client and store._connection._client.client_state, equals="CLOSED")
    wait_until(partial(_said, store), is_so=lambda said: "the login was refused" in said)


def _limits_or_failure(store: ZooKeeperHarness) -> object:
    try:
        return store.load().limits
    except UnreadableError as error:
        return error


def _said(store: ZooKeeperStore) -> str:
    """Return the number of limits, or why there are none: a busy machine may not come to an answer in time."""
    try:
        return f"{len(store.load(0).policy.limits)} limits"
    except UnreadableError as error:
        return str(error)


def _node(**properties: str) -> dict[str, object]:
    return {"version": 1, "config": properties}
