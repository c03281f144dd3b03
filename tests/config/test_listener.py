"""The rules of a listener, each with its line and its fix."""

from pathlib import Path

import pytest

from config.loader import load_settings
from config.settings import Listener
from tests.config.loading import problems

NAMES = """\
cluster: {name: demo, bootstrap: ["b:9093"]}
listeners:
  - name: TLS
    bind: ":9093"
    advertise: kafka.example.com
    broker_host: b{node_id}.kafka.example.com
    authentication: sasl
    tls:
      certificate: tls/chain.pem
      key: tls/key.pem
      client_authentication: required
      client_ca: tls/clients.pem
      principal_mapping_rules: RULE:^CN=(.*?),.*$/$1/,DEFAULT
    sasl:
      kerberos:
        keytab: kafka.keytab
        default_realm: EXAMPLE.COM
    proxy_protocol:
      networks: [10.0.0.0/8]
quotas: {store: {path: quotas.yaml}}
"""
ONE_OF_BOTH = "write either brokers (a port for each) or broker_host (a host name for each)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_paths_are_beside_the_configuration(file: Path) -> None:
    file.write_text(NAMES)
    listener = load_settings(file).listeners[0]
    assert listener.tls is not None
    assert listener.sasl.kerberos is not None
    assert listener.tls.certificate == file.parent / "tls/chain.pem"
    assert listener.tls.key == file.parent / "tls/key.pem"
    assert listener.tls.client_ca == file.parent / "tls/clients.pem"
    assert listener.sasl.kerberos.keytab == file.parent / "kafka.keytab"


def test_requested_client_certificate_needs_no_mapping_rules(file: Path) -> None:
    rules = "      principal_mapping_rules: RULE:^CN=(.*?),.*$/$1/,DEFAULT\n"
    file.write_text(NAMES.replace(rules, "").replace("required", "requested"))
    tls = load_settings(file).listeners[0].tls
    assert tls is not None
    assert (tls.client_authentication, tls.principal_mapping_rules) == ("requested", "DEFAULT")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    broker_host: b{node_id}.kafka.example.com\n", "", [
            f":3:5: listeners[0].broker_host: is missing; {ONE_OF_BOTH}"]),
        ("broker_host:", "brokers: {0: 9100}\n    broker_host:", [
            f":7:18: listeners[0].broker_host: cannot be combined with brokers; {ONE_OF_BOTH}"]),
        ("b{node_id}.kafka.example.com", "kafka.example.com", [
            (":6:18: listeners[0].broker_host: 'kafka.example.com' does not name one host for each broker; "
            "write it like b{node_id}.example.com")]),
        ("b{node_id}.kafka.example.com", '"10.0.0.{node_id}"', [
            (":6:18: listeners[0].broker_host: '10.0.0.{node_id}' is an IP address, and TLS names none (SNI); "
            "write a host name")]),
        ("advertise: kafka", "advertise: B12.kafka", [
            (":6:18: listeners[0].broker_host: gives broker 12 the name in advertise: "
            "B12.kafka.example.com; write an advertise that does not match it")]),
        ("advertise: kafka.example.com", "advertise: kafka.example.com.", [
            (":6:18: listeners[0].broker_host: does not work with advertise: kafka.example.com.: "
            "TLS omits the final dot; write it without the dot")]),
        ("      client_ca: tls/clients.pem\n", "", [
            (":9:7: listeners[0].tls.client_ca: is missing; "
            "client_authentication: required needs the authorities to verify by")]),
        ("      client_authentication: required\n", "", [
            (":11:18: listeners[0].tls.client_ca: has no effect: clients need no certificate; "
            "write client_authentication: required"),
            (":12:32: listeners[0].tls.principal_mapping_rules: has no effect: "
             "clients need no certificate; "
            "write client_authentication: required")]),
        ("client_authentication: required", "client_authentication: require", [
            ":11:30: listeners[0].tls.client_authentication: 'require' is not known; did you mean required?"]),
        ("key: tls/key.pem", "key: tls/key.pem\n      minimum_version: TLSv1.3\n      ciphers: HIGH", [
            (":12:16: listeners[0].tls.ciphers: has no effect: only the ciphers of TLS 1.2 can be chosen; "
            "leave it out")]),
        ("      key: tls/key.pem\n", "", [":9:7: listeners[0].tls.key: is missing; add `key`"]),
        ("default_realm: EXAMPLE.COM", "default_realm: EXAMPLE.COM\n        principal_to_local_rules: []", [
            (":18:35: listeners[0].sasl.kerberos.principal_to_local_rules: is empty: no client would have a name; "
            "write [DEFAULT], or leave it out")]),
        ("        keytab: kafka.keytab\n        default_realm: EXAMPLE.COM\n", "", [
            (":15:7: listeners[0].sasl.kerberos: has no settings; "
            "it takes keytab, default_realm, principal_to_local_rules")]),
        ("    proxy_protocol:\n      networks: [10.0.0.0/8]\n", "    proxy_protocol:\n", [
            ":18:5: listeners[0].proxy_protocol: has no settings; it takes networks"]),
        ("[10.0.0.0/8]", "[]", [
            ":19:17: listeners[0].proxy_protocol.networks: is empty; write at least one network, as in 10.0.0.0/8"]),
        ("10.0.0.0/8", "10.0.0.1/8", [
            (":19:18: listeners[0].proxy_protocol.networks[0]: '10.0.0.1/8' is an address in a network; "
            "write 10.0.0.0/8, or 10.0.0.1 for it alone")]),
        ("10.0.0.0/8", "10.0.0.0/33", [
            (":19:18: listeners[0].proxy_protocol.networks[0]: '10.0.0.0/33' is not an IP network; "
            "write it like 10.0.0.0/8, fd00::/8 or 10.0.0.1")]),
        ("[10.0.0.0/8]", '["::ffff:10.0.0.0/104"]', [
            (":19:18: listeners[0].proxy_protocol.networks[0]: '::ffff:10.0.0.0/104' holds IPv4 addresses in IPv6 form;"
            " write the IPv4 network")]),
        ("10.0.0.0/8", "", [
            ":19:17: listeners[0].proxy_protocol.networks: is empty; write at least one network, as in 10.0.0.0/8"]),
        ("    proxy_protocol:", "    cluster:\n    proxy_protocol:", [
            ":18:5: listeners[0].cluster: has no settings; it takes bootstrap, tls, sasl"]),
    ],
)  # fmt: skip
def test_invalid_listener_is_refused_with_line_and_fix(file: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in NAMES
    assert problems(file, NAMES.replace(old, new)) == expected


def test_listener_limits_are_read_from_its_section(file: Path) -> None:
    limits = "    limits: {connection_rate: 20, connections: 500}\n"
    file.write_text(NAMES.replace("    proxy_protocol:\n", f"{limits}    proxy_protocol:\n"))
    found = load_settings(file).listeners[0].limits
    assert (found.connection_rate, found.connections, found.exempt_from_connection_rate) == (20, 500, False)


def test_exempting_every_listener_from_connection_rate_is_refused(file: Path) -> None:
    exempt = "    limits: {exempt_from_connection_rate: true}\n"
    content = NAMES.replace("    proxy_protocol:\n", f"{exempt}    proxy_protocol:\n")
    assert problems(file, content) == [
        (
            ":18:43: listeners[0].limits.exempt_from_connection_rate: exempts every listener from "
            "limits.connection_rate; remove it from at least one listener"
        )
    ]
    other = "  - {name: PLAIN, bind: ':9092', advertise: b, brokers: {0: 9100}}\nquotas: {"
    file.write_text(content.replace("quotas: {", other))
    assert [each.limits.exempt_from_connection_rate for each in load_settings(file).listeners] == [True, False]


def test_host_names_need_tls(file: Path) -> None:
    tls = NAMES[NAMES.index("    tls:") : NAMES.index("    sasl:")]
    needs_tls = "needs tls; add the section tls: clients name the host in its handshake"
    assert problems(file, NAMES.replace(tls, "")) == [f":6:18: listeners[0].broker_host: {needs_tls}"]
    # A section that nobody filled in is never taken for plaintext.
    assert problems(file, NAMES.replace(tls, "    tls:\n")) == [
        (
            ":8:5: listeners[0].tls: has no settings; it takes certificate, key, client_authentication, client_ca, "
            "principal_mapping_rules, minimum_version, ciphers"
        )
    ]


PORTS = """\
cluster: {name: demo, bootstrap: ["b:9093"]}
listeners:
  - {name: OUTSIDE, bind: ":9092", advertise: HOST, brokers: BROKERS}
quotas: {store: {path: quotas.yaml}}
"""
MAPPED = '{"0-2": {bind: "9100-9102", advertise: "31100-31102"}, "7": "9107"}'


def listener_of(file: Path, text: str) -> Listener:
    file.write_text(text)
    return load_settings(file).listeners[0]


def test_listener_binds_one_address_and_advertises_another(file: Path) -> None:
    listener = listener_of(file, PORTS.replace("HOST", "kafka.example.com:31092").replace("BROKERS", MAPPED))
    assert (str(listener.bind), str(listener.bootstrap)) == (":9092", "kafka.example.com:31092")
    assert [str(listener.bound(node_id)) for node_id in (0, 2, 7, 8)] == [":9100", ":9102", ":9107", "None"]
    told = ["kafka.example.com:31100", "kafka.example.com:31102", "kafka.example.com:9107", "None"]
    assert [str(listener.advertised(node_id)) for node_id in (0, 2, 7, 8)] == told


def test_advertised_host_without_a_port_uses_bound_ports(file: Path) -> None:
    listener = listener_of(file, PORTS.replace("HOST", '"::1"').replace("BROKERS", '{"0-2": "9100-9102"}'))
    assert str(listener.bootstrap) == "[::1]:9092"
    assert (str(listener.bound(1)), str(listener.advertised(1))) == (":9101", "[::1]:9101")


def test_broker_host_names_advertise_another_port_than_bound(file: Path) -> None:
    text = NAMES.replace("advertise: kafka.example.com", "advertise: kafka.example.com:443")
    listener = listener_of(file, text)
    assert (str(listener.bound(3)), str(listener.advertised(3))) == (":9093", "b3.kafka.example.com:443")


OWN = "give each its own"
ONE_PORT = f"{OWN}; one port for all brokers takes TLS and broker_host"
BOTH = "to bootstrap.servers; give each its own: the port of bootstrap.servers is in advertise"


@pytest.mark.parametrize(
    ("host", "brokers", "expected"),
    [
        ("k:9101", '{"0-2": "9100-9102"}', f"listeners[0].brokers: port 9101 belongs to broker 1 and {BOTH}"),
        (
            "k",
            '{"0": {bind: "9100", advertise: "9092"}}',
            f"listeners[0].brokers: port 9092 belongs to broker 0 and {BOTH}",
        ),
        (
            "k",
            '{"0-2": {bind: "9100-9102", advertise: "443"}}',
            "listeners[0].brokers.0-2.advertise: 3 node ids need 3 ports, not 1; write 443-445",
        ),
        (
            "k",
            '{"0": {bind: "9100", advertise: "443"}, "1": {bind: "9101", advertise: "443"}}',
            "listeners[0].brokers.1.advertise: port 443 already belongs to another advertised range; " + ONE_PORT,
        ),
        (
            "k",
            '{"0": {bind: "9092", advertise: "443"}}',
            "listeners[0].brokers: port 9092 already belongs to the bootstrap port of listener OUTSIDE; " + OWN,
        ),
    ],
)
def test_invalid_advertised_ports_are_refused_with_a_reason(file: Path, host: str, brokers: str, expected: str) -> None:
    (problem,) = problems(file, PORTS.replace("HOST", host).replace("BROKERS", brokers))
    assert problem.partition(": ")[2] == expected
