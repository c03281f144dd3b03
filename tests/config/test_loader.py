"""Configuration files, and word for word what is said about them."""

import contextlib
from copy import deepcopy
from ipaddress import ip_network
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from config.brokers import parse_broker_ports
from config.loader import load_settings, named_quota_files
from config.problems import ConfigError, field_path
from config.settings import BrokerSasl, BrokerTls, ClientTls, Kerberos, ProxyProtocol, Route
from config.stores import FileStore
from config.units import Address
from tests.config.loading import problems, refused

GOOD = dedent(
    """\
    cluster: {name: demo, bootstrap: ["127.0.0.1:19092", "[::1]:19093"]}
    listeners:
      - {name: PLAIN, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109", 42: 9142}}
    quotas: {store: {type: file, path: quotas.yaml}}
    """
)
EVERYTHING = dedent(
    """\
    cluster:
      {name: "no", bootstrap: ["b:1"], refresh: 1m, connect_timeout: 500ms,
       tls: {ca: ca.pem, verify_hostname: false}, sasl: {mechanism: PLAIN, username: u, password_file: /p}}
    listeners:
      - {name: A, bind: ":9092", advertise: "::1", brokers: {0: "9100"}, authentication: sasl,
         sasl: {sub_claim: email, kerberos: {keytab: k, default_realm: R, principal_to_local_rules: [DEFAULT]}},
         proxy_protocol: {networks: [10.0.0.0/8, "::1"]}}
      - {name: B, bind: ":9093", advertise: b.x, broker_host: "b{node_id}.x", cluster: {bootstrap: ["b:2"]},
         tls: {certificate: c, key: k, client_authentication: requested, client_ca: a,
               principal_mapping_rules: RULE:x/y/, minimum_version: TLSv1.2, ciphers: HIGH}}
    quotas:
      store: {path: /etc/sluice/quotas.yaml}
      mode: off
      response: delay
      window: {samples: 3, size: 2s}
      max_delay: 1.5s
    limits:
      request: 1MiB
      request_before_authentication: 1KiB
      authentication_timeout: 9s
      response: 2MB
      connections: 7
      connections_per_ip: 3
      connections_per_ip_overrides: {"10.0.0.5": 0, "::ffff:10.0.0.6": 5, "2001:DB8::0": 6}
      connections_before_request: 4
      idle: 1h
      unread: 9s
      socket_receive_buffer: -1
      socket_send_buffer: 64KiB
    kafka: {fetch_max_version: 12}
    admin: {bind: "0.0.0.0:9404"}
    metrics: {max_series: 5000}
    drain: {timeout: 0s}
    log: {level: debug, format: console}
    """
)
TREE = yaml.load(EVERYTHING, yaml.BaseLoader)  # noqa: S506  it makes texts of everything, and nothing else
OF_QUOTAS = (
    "store, stores, when_unavailable, static, mode, response, window, controller_window, exempt, admins, max_delay, "
    "max_hold"
)
OWN = "give each its own"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_minimal_configuration_file_is_loaded(file: Path) -> None:
    file.write_text(GOOD)
    settings = load_settings(file)
    assert settings.cluster.name == "demo"
    assert [str(address) for address in settings.cluster.bootstrap] == ["127.0.0.1:19092", "[::1]:19093"]
    assert settings.listeners[0].brokers == parse_broker_ports({"0-9": "9100-9109", "42": "9142"})
    assert settings.quotas.store == FileStore(path=file.parent / "quotas.yaml")


def test_every_setting_can_be_written(file: Path) -> None:
    file.write_text(EVERYTHING)
    settings = load_settings(file)
    assert settings.cluster.name == "no"
    assert (settings.cluster.refresh_s, settings.cluster.connect_timeout_s) == (60, 0.5)
    assert settings.cluster.tls == BrokerTls(ca=file.parent / "ca.pem", verify_hostname=False)
    assert settings.cluster.sasl == BrokerSasl(mechanism="PLAIN", username="u", password_file=Path("/p"))
    ports, names = settings.listeners
    assert (str(ports.bootstrap), ports.authentication, ports.sasl.sub_claim) == ("[::1]:9092", "sasl", "email")
    assert ports.sasl.kerberos == Kerberos(keytab=file.parent / "k", default_realm="R")
    assert ports.proxy_protocol == ProxyProtocol(networks=(ip_network("10.0.0.0/8"), ip_network("::1")))
    assert (names.broker_host, names.cluster) == ("b{node_id}.x", Route(bootstrap=(Address("b", 2),)))
    assert names.tls == ClientTls(
        certificate=file.parent / "c",
        key=file.parent / "k",
        client_authentication="requested",
        client_ca=file.parent / "a",
        principal_mapping_rules="RULE:x/y/",
        ciphers="HIGH",
    )
    quotas = settings.quotas
    assert quotas.store == FileStore(path=Path("/etc/sluice/quotas.yaml"))
    assert (quotas.mode, quotas.response, quotas.max_delay_ms) == ("off", "delay", 1500)
    assert (quotas.window.samples, quotas.window.size_ms) == (3, 2000)
    limits = settings.limits
    assert (limits.request_bytes, limits.request_before_authentication_bytes) == (2**20, 2**10)
    assert (limits.authentication_timeout_s, limits.response_bytes, limits.connections) == (9, 2_000_000, 7)
    assert (limits.connections_per_ip, limits.connections_before_request) == (3, 4)
    assert limits.connections_per_ip_overrides == {"10.0.0.5": 0, "10.0.0.6": 5, "2001:db8::": 6}
    assert (limits.idle_s, limits.unread_s) == (3600, 9)
    assert (limits.socket_receive_buffer_bytes, limits.socket_send_buffer_bytes) == (-1, 2**16)
    assert settings.kafka.fetch_max_version == 12
    assert (str(settings.admin.bind), settings.metrics.max_series) == ("0.0.0.0:9404", 5000)
    assert (settings.drain.timeout_s, settings.log.level, settings.log.format) == (0, "debug", "console")


def test_invalid_ip_overrides_and_buffer_sizes_are_each_reported(file: Path) -> None:
    content = """\
        limits:
          connections_per_ip_overrides: {ab.cd: 1, "10.0.0.1": x, "10.0.0.2": [], "::1": 1, "0::1": 1}
          socket_send_buffer: 0
          socket_receive_buffer: -2
        """
    said = problems(file, GOOD + dedent(content))
    assert [line.partition("limits.")[2] for line in said] == [
        "connections_per_ip_overrides.ab.cd: 'ab.cd' is not an IP address; host names are not looked up here",
        "connections_per_ip_overrides.10.0.0.1: 'x' is not a whole number; write digits only, without a leading zero",
        "connections_per_ip_overrides.10.0.0.2: must be a whole number",
        "connections_per_ip_overrides.0::1: 0::1 occurs twice, in different spellings; write each address once",
        "socket_send_buffer: 0 is too small; write a size, or -1 to let the kernel choose",
        "socket_receive_buffer: '-2' is not a size; write it like 10MiB, 10MB or 10485760",
    ]


def test_every_problem_is_told_at_once(file: Path) -> None:
    content = """\
        cluster: {name: no, bootstrap: ["127.0.0.1:19092", "x"], refrsh: 30s}
        listeners:
          - {name: P, bind: "127.0.0.1:9092", advertise: 0.0.0.0, brokers: {"0-9": "9100-9108", 42: 1, "42": 2}}
          - {name: Q, bind: "127.0.0.1", brokers: []}
        quotas: {store: {typ: file, path: quotas.yaml}, mode: [], window: {samples: 0, size: 1}}
        log:
        admin: {bind: ":9092"}
        metrics: {max_series: -1}
        usage: {topic: {name: u, protect: yes}}
        limits: {request: 10M, response: 010, connections: }
        drain: 30s
        """
    assert problems(file, dedent(content)) == [
        ':1:17: cluster.name: no without quotes is not a text to every reader of YAML; write "no"',
        ":1:52: cluster.bootstrap[1]: 'x' has no port; write host:port, as in 127.0.0.1:9092",
        ":1:58: cluster.refrsh: unknown setting; did you mean refresh?",
        ":3:50: listeners[0].advertise: clients cannot connect to '0.0.0.0'; write the host that leads to this proxy",
        ":3:76: listeners[0].brokers.0-9: 10 node ids need 10 ports, not 9; write 9100-9109",
        ":3:96: listeners[0].brokers.42: is a duplicate key; keep one (the first is on line 3)",
        ":4:5: listeners[1].advertise: is missing; add `advertise`",
        ":4:21: listeners[1].bind: '127.0.0.1' has no port; write host:port, as in 127.0.0.1:9092",
        ':4:43: listeners[1].brokers: must be node ids and ports; write it like {"0-9": "9100-9109"}',
        ":5:18: quotas.store.typ: unknown setting; did you mean type?",
        ":5:55: quotas.mode: must be a single word; one of enforce, shadow, off",
        ":5:77: quotas.window.samples: 0 is too small; it must be more than 0",
        ":5:86: quotas.window.size: '1' has no unit; write it like 500ms, 30s or 2m",
        ":6:1: log: has no settings; it takes level, format, throttles",
        ":8:23: metrics.max_series: '-1' is not a whole number; write digits only, without a leading zero",
        ":9:35: usage.topic.protect: 'yes' is neither true nor false",
        ":10:19: limits.request: '10M' has the unknown unit 'M'; write it like 10MiB, 10MB or 10485760",
        ":10:34: limits.response: '010' is not a size; write it like 10MiB, 10MB or 10485760",
        ":11:8: drain: has no settings; it takes delay, timeout",
    ]


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ("{samples: 1001}", "samples: 1001 samples are too many; 1000 is the most"),
        ("{size: 61m}", "size: is too long for one sample; 1h is the most"),
        ("{samples: 25, size: 1h}", "size: makes the window of all samples too long; together they may last 1d"),
    ],
)
def test_windows_are_those_that_usage_records_can_say(file: Path, window: str, problem: str) -> None:
    (found,) = problems(file, GOOD.replace("quotas: {", f"quotas: {{window: {window}, "))
    assert found.endswith(f"quotas.window.{problem}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"127.0.0.1:19092", "[::1]:19093"', "", [":1:34: cluster.bootstrap: is empty; write at least one broker"]),
        ('["127.0.0.1:19092", "[::1]:19093"]', "b:1", [
            ":1:34: cluster.bootstrap: must be a list; begin each item with `- `, or put [ ] around them"]),
        ('["127.0.0.1:19092", "[::1]:19093"]', '"b:1, c:2"', [
            ':1:34: cluster.bootstrap: must be a list, not a single text; write ["b:1", "c:2"]']),
        ('"127.0.0.1:9092"', '[":9092"]', [
            ":3:25: listeners[0].bind: must be an address to bind; write it like 127.0.0.1:9092"]),
        ('"127.0.0.1:19092"', '"${BROKER}:9092"', [
            (":1:35: cluster.bootstrap[0]: '${BROKER}' is not a host name or an IP address; "
            "no variables are expanded: write the value itself")]),
        ("advertise: 127.0.0.1", 'advertise: "{{ host }}"', [
            (":3:54: listeners[0].advertise: '{{ host }}' is not a host name or an IP address; "
            "no variables are expanded: write the value itself")]),
        ("{store: {type: file, path: quotas.yaml}}", "\n  - {entity: {user: a}, producer_byte_rate: 1MiB}", [
            (":5:3: quotas: must be a section, not a list; "
            "write quotas into a file of their own, and its name as quotas.store.path")]),
        ("{store: {type: file, path: quotas.yaml}}", "{store: [], mode: off}", [
            ":4:17: quotas.store: must be a section, not a list; it takes type, path"]),
        ("name: demo", "name: ", [":1:11: cluster.name: has no value; write a name, or leave the key out"]),
        ("path: quotas.yaml", "path: {}", [
            ":4:36: quotas.store.path: must be a path; write it like tls/key.pem"]),
        ("{type: file, path: quotas.yaml}", "{type: etcd, connect: z:2379}", [
            ":4:24: quotas.store.type: 'etcd' is not known; known here: file, zookeeper, cluster"]),
        ("{type: file, path: quotas.yaml}", "{type: zookeeper, conect: z:2181}", [
            ":4:17: quotas.store.connect: is missing; add `connect`",
            ":4:35: quotas.store.conect: unknown setting; did you mean connect?"]),
        ("type: file", "type: flie", [":4:24: quotas.store.type: 'flie' is not known; did you mean file?"]),
        ("{store: {type: file, path: quotas.yaml}}", "", [
            f":4:1: quotas: has no settings; it takes {OF_QUOTAS}"]),
        ("store: {type: file, path: quotas.yaml}", "mode: shadow", [
            ":4:9: quotas.store: is missing; add `store`"]),
        ("{store: {type: file, path: quotas.yaml}}", "{store: {path: a}, stores: [{path: b}]}", [
            ":4:36: quotas.stores: cannot be combined with store; write all stores here, or leave it out"]),
        ("store: {type: file, path: quotas.yaml}", "stores: [{type: cluster}, {path: a}, {type: etcd}]", [
            ":4:54: quotas.stores[2].type: 'etcd' is not known; known here: file, zookeeper, cluster"]),
        ("store: {type: file, path: quotas.yaml}", "stores: [{type: cluster}, {pth: a}]", [
            ":4:36: quotas.stores[1].path: is missing; add `path`",
            ":4:37: quotas.stores[1].pth: unknown setting; did you mean path?"]),
        ("store: {type: file, path: quotas.yaml}", "stores: [{type: cluster}, {path: a}]", [
            ":4:26: quotas.stores[0].type: a cluster store must be the lowest layer; write it last"]),
        ("store: {type: file, path: quotas.yaml}", "stores: {path: a}", [
            ":4:18: quotas.stores: must be a list; begin each item with `- `, or put [ ] around them"]),
        ("store: {type: file, path: quotas.yaml}", "store: {type: cluster, poll: 1ms}", [
            ":4:39: quotas.store.poll: is too short or too long; 100ms to 1h"]),
        ("42: 9142", "42: 9092", [
            f":3:74: listeners[0].brokers: port 9092 already belongs to the bootstrap port of listener PLAIN; {OWN}"]),
        ("quotas:", 'admin: {bind: ":9105"}\nquotas:', [
            f":4:15: admin.bind: port 9105 already belongs to the brokers of listener PLAIN; {OWN}"]),
        ("quotas:", '  - {name: PLAIN, bind: ":9093", advertise: h, brokers: {0: 9200}}\nquotas:', [
            f":4:12: listeners[1].name: 'PLAIN' is the name of another listener; {OWN}"]),
        ("demo,", "demo, refresh_s: 3,", [":1:23: cluster.refresh_s: unknown setting; did you mean refresh?"]),
    ],
)  # fmt: skip
def test_invalid_setting_is_reported_word_for_word(file: Path, old: str, new: str, expected: list[str]) -> None:
    assert problems(file, GOOD.replace(old, new)) == expected


def test_empty_configuration_is_refused_and_names_sections(file: Path) -> None:
    for empty in ("", "# to be written\n", "---\n"):
        assert problems(file, empty) == [":1:1: is empty; write the sections cluster, listeners and quotas"]


def test_a_quota_file_is_no_configuration(file: Path) -> None:
    assert problems(file, "quotas:\n  - {entity: {user: a}, producer_byte_rate: 1MiB}\n") == [
        ":1:1: is a quota file, not a configuration; name it in quotas.store.path of a configuration"
    ]


def test_null_lifts_a_limit(file: Path) -> None:
    file.write_text(GOOD + "kafka: {fetch_max_version: null}\nlimits: {connections: ~}\n")
    settings = load_settings(file)
    assert (settings.kafka.fetch_max_version, settings.limits.connections) == (None, None)


def places(node: Any) -> list[tuple[str | int, ...]]:
    """Return the steps to everything in a nest of mappings and lists."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [()] + [(step, *below) for step, child in children for below in places(child)]


@pytest.mark.long
@pytest.mark.parametrize("steps", places(TREE)[1:], ids=str)
def test_wrong_value_of_any_setting_is_refused_at_its_place(file: Path, steps: tuple[str | int, ...]) -> None:
    for wrong in ("", {}, [], None, "x", [None], {"x": None}, "\0", "9" * 30):
        if wrong is None and steps[-1] == "brokers":
            continue  # as if it were left out: broker_host is missed then
        tree = deepcopy(TREE)
        holder = tree
        for step in steps[:-1]:
            holder = holder[step]
        holder[steps[-1]] = wrong
        file.write_text(yaml.safe_dump(tree))
        assert all(path.startswith(field_path(steps)) for path in refused(file))


def test_a_file_that_breaks_off_is_never_read_as_something_else(file: Path) -> None:
    content = GOOD + "drain: {timeout: 30s}\nlimits:\n  connections: 1048\n"
    read = []
    for size in range(len(content) + 1):
        file.write_text(content[:size])
        with contextlib.suppress(ConfigError):
            assert load_settings(file).limits.connections in {None, 1048}
            read.append(content[:size].rstrip("\n"))
    assert set(read) == {GOOD.rstrip(), GOOD + "drain: {timeout: 30s}", content.rstrip()}


def test_the_quota_file_is_known_where_something_else_is_wrong(file: Path) -> None:
    file.write_text("quotas: {store: {path: q.yaml}}\nwrong: 1\n")
    assert named_quota_files(file) == {("quotas", "store", "path"): file.parent / "q.yaml"}
    for nothing in ("quotas: {store: q.yaml}\n", "quotas: [\n", "a: 1\n", "quotas: {store: {path: }}\n"):
        file.write_text(nothing)
        assert named_quota_files(file) == {}
