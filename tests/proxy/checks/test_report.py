"""What `sluice check` says about the files that a configuration names."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from config.settings import Kerberos
from proxy.checks.report import Report, check
from tests.proxy.checks.secure import AUTHORITY, CONFIG, KERBEROS, NOW_S, secret, show, write

NOW = datetime.fromtimestamp(NOW_S, UTC)


def lines(report: Report, folder: Path) -> list[str]:
    """Return problems, then warnings, without the folder."""
    found = [*map(str, report.problems), *(f"warning: {warning}" for warning in report.warnings)]
    return [line.replace(f"{folder}/", "").removeprefix("sluice.yaml") for line in found]


def found(folder: Path, config: str = CONFIG) -> list[str]:
    (folder / "sluice.yaml").write_text(config)
    return lines(check(folder / "sluice.yaml", NOW_S), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def test_valid_configuration_gives_report_without_problems(folder: Path) -> None:
    report = check(folder / "sluice.yaml", NOW_S)
    assert len(report.mapped) == 2
    assert report == Report(listeners=1, quotas=1, mapped=report.mapped)


Change = Callable[[Path], object]


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def content(name: str, what: bytes) -> Change:
    return lambda folder: secret(folder / name, what)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (remove("chain.pem"), ":19:20: listeners[0].tls.certificate: chain.pem cannot be read: no such file"),
        (remove("chain.key"), ":20:12: listeners[0].tls.key: chain.key cannot be read: no such file or directory"),
        (remove("ca.pem"), ":5:9: cluster.tls.ca: ca.pem cannot be read: no such file or directory"),
        (remove("proxy.key"), ":7:10: cluster.tls.key: proxy.key cannot be read: no such file or directory"),
        (remove("password"), ":11:20: cluster.sasl.password_file: password: no such file or directory"),
        (content("password", b"\n"), ":11:20: cluster.sasl.password_file: password: is empty: write"),
        (content("password", b"\xff"), ":11:20: cluster.sasl.password_file: password: is not UTF-8"),
        (content("ca.pem", b"none"), ":5:9: cluster.tls.ca: ca.pem is not a PEM file"),
        (content("chain.key", b"none"), ":20:12: listeners[0].tls.key: chain.key holds no private key; it must hold"),
    ],
)  # fmt: skip
def test_unreadable_file_is_reported_at_position_of_its_setting(folder: Path, change: Change, expected: str) -> None:
    change(folder)
    first = found(folder)[0]
    assert first.startswith(expected)


def test_every_file_is_looked_at(folder: Path) -> None:
    for name in ("ca.pem", "proxy.pem", "proxy.key", "password", "chain.pem", "chain.key"):
        (folder / name).unlink()
    at = [line.split(": ")[1] for line in found(folder)]
    assert at == [
        "cluster.tls.ca",
        "cluster.tls.certificate",
        "cluster.tls.key",
        "cluster.sasl.password_file",
        "listeners[0].tls.certificate",
        "listeners[0].tls.key",
        "listeners[0].tls.client_ca",
    ]


def test_private_key_of_other_certificate_is_reported(folder: Path) -> None:
    secret(folder / "chain.key", (folder / "proxy.key").read_bytes())
    (line,) = found(folder)
    assert line.startswith(":20:12: listeners[0].tls.key: is not the key of the first certificate, ")
    assert line.endswith("; write the pair, the chain with its own certificate first")


def test_certificate_chain_in_wrong_order_is_reported(folder: Path) -> None:
    child = AUTHORITY.create_child_ca()
    issued = child.issue_cert("kafka.example.com", "*.kafka.example.com")
    show(folder, "chain", issued)
    assert found(folder) == []
    other = trustme.CA()
    (folder / "chain.pem").write_bytes(issued.cert_chain_pems[0].bytes() + other.cert_pem.bytes())
    (line,) = found(folder)
    assert re.search(r"certificate: .* is followed by .*, which did not issue it; write the certificate first", line)


@pytest.mark.parametrize(
    ("since_days", "until_days", "said"),
    [
        (-9, -0.5, r":19:20: \S+ .* expired on 2030-03-17; renew it"),
        (2, 99, r":19:20: \S+ .* is not valid before 2030-03-19 17:46 UTC; compare the clocks"),
        (-9, 5.5, r"warning: :19:20: \S+ .* expires on 2030-03-23, in 5 days; renew it"),
        (-9, 31, None),
    ],
)  # fmt: skip
def test_expiring_certificate_is_reported(folder: Path, since_days: float, until_days: float, said: str | None) -> None:
    issued = AUTHORITY.issue_cert(
        "kafka.example.com",
        "*.kafka.example.com",
        not_before=NOW + timedelta(days=since_days),
        not_after=NOW + timedelta(days=until_days),
    )
    show(folder, "chain", issued)
    lines = found(folder)
    if said is None:
        assert lines == []
    else:
        assert len(lines) == 1
        assert re.fullmatch(said, lines[0].replace("warning: sluice.yaml", "warning: "))


@pytest.mark.parametrize(
    ("names", "missed"),
    [
        (["kafka.example.com", "b3.kafka.example.com"], []),  # which brokers there are is not known here
        (["kafka.example.com"], ["b0.kafka.example.com"]),
        (["*.example.com"], ["b0.kafka.example.com"]),
        (["*.kafka.example.com"], ["kafka.example.com"]),
        (["localhost"], ["kafka.example.com", "b0.kafka.example.com"]),
    ],
)
def test_hosts_missing_from_certificate_are_warned_about(folder: Path, names: list[str], missed: list[str]) -> None:
    show(folder, "chain", AUTHORITY.issue_cert(*names))
    assert [re.findall(r"is not for (\S+), only for", line)[0] for line in found(folder)] == missed
    assert all(line.startswith("warning: sluice.yaml:19:20: ") for line in found(folder))


@pytest.mark.parametrize("name", ["chain.key", "proxy.key", "password"])
def test_secrets_are_not_for_everybody(folder: Path, name: str) -> None:
    (folder / name).chmod(0o644)
    (line,) = found(folder)
    assert line.startswith("warning: ")
    assert line.endswith(f": every user of this machine can read {name}; chmod o-rwx {name}")
    (folder / name).chmod(0o640)
    assert found(folder) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("ECDHE+AESGCM:!RC4", "nonsense", [
            (":24:16: listeners[0].tls.ciphers: 'nonsense' selects no cipher of this OpenSSL; "
            "`openssl ciphers` lists them; those of TLS 1.3 cannot be chosen")]),
        ("ECDHE+AESGCM:!RC4", "TLS_AES_256_GCM_SHA384", [
            (":24:16: listeners[0].tls.ciphers: 'TLS_AES_256_GCM_SHA384' selects no cipher of this OpenSSL; "
            "`openssl ciphers` lists them; those of TLS 1.3 cannot be chosen")]),
        ("ECDHE+AESGCM:!RC4", "HIGH:nonsense,!aNULL -MD5:@SECLEVEL=2:+AES", [
            ("warning: sluice.yaml:24:16: listeners[0].tls.ciphers: nonsense selects no cipher of this OpenSSL; "
            "leave it out")]),
        ("SCRAM-SHA-512", "PLAIN", []),
    ],
)  # fmt: skip
def test_unknown_ciphers_are_reported_at_their_setting(folder: Path, old: str, new: str, expected: list[str]) -> None:
    assert found(folder, CONFIG.replace(old, new)) == expected


def test_certificate_refused_by_openssl_is_reported(folder: Path) -> None:
    weak = trustme.CA(key_type=trustme.KeyType.RSA)
    show(folder, "chain", weak.issue_cert("kafka.example.com", "*.kafka.example.com", key_type=trustme.KeyType.RSA))
    # A group of the security level that no key of this size reaches.
    (line,) = found(folder, CONFIG.replace("ECDHE+AESGCM:!RC4", "ECDHE+AESGCM:@SECLEVEL=4"))
    assert line.startswith(":19:7: listeners[0].tls: tls.certificate ")


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("$1/L,DEFAULT", "$1/X", ":23:32: listeners[0].tls.principal_mapping_rules: "),
        ("^CN=(.*?),.*$", "[a&&b]", ":23:32: listeners[0].tls.principal_mapping_rules: "),
    ],
)  # fmt: skip
def test_invalid_principal_mapping_rules_are_reported_with_position(folder: Path, old: str, new: str, at: str) -> None:
    (line,) = found(folder, CONFIG.replace(old, new))
    assert line.startswith(at)


KERBEROS_AT = "listeners[0].sasl.kerberos"


def test_keytab_problems_and_invalid_kerberos_rules_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Kerberos] = []
    monkeypatch.setattr("proxy.checks.configuration.acceptor", opened.append)
    assert found(folder, KERBEROS) == []
    assert [kerberos.keytab for kerberos in opened] == [folder / "kafka.keytab"]
    (line,) = found(folder, KERBEROS.replace("RULE:[1:$1](.*)s/@.*//", "RULE:[1:$1"))
    assert line.startswith(f":29:35: {KERBEROS_AT}.principal_to_local_rules: ")
    (folder / "kafka.keytab").chmod(0o644)
    (line,) = found(folder, KERBEROS)
    assert line.startswith(f"warning: sluice.yaml:27:17: {KERBEROS_AT}.keytab: every user of this machine can read ")
    secret(folder / "kafka.keytab", b"x")
    (line,) = found(folder, KERBEROS)
    assert line.startswith(f":27:17: {KERBEROS_AT}.keytab: kafka.keytab is not a keytab; ")
    (folder / "kafka.keytab").unlink()
    (line,) = found(folder, KERBEROS)
    assert line.startswith(f":27:17: {KERBEROS_AT}.keytab: kafka.keytab cannot be read: ")


def test_gssapi_needs_its_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    (line,) = found(folder, KERBEROS)
    assert line.startswith(f":27:9: {KERBEROS_AT}: GSSAPI cannot be read: ")
    assert "install the extra, kafka-sluice[gssapi]" in line


def test_plain_login_to_brokers_without_tls_is_warned_about(folder: Path) -> None:
    tls = CONFIG[CONFIG.index("  tls:") : CONFIG.index("  sasl:")]
    assert found(folder, CONFIG.replace("SCRAM-SHA-512", "PLAIN").replace(tls, "")) == [
        (
            "warning: sluice.yaml:5:16: cluster.sasl.mechanism: sends the password to the brokers in cleartext; "
            "add tls to the cluster, or use SCRAM"
        )
    ]


@pytest.mark.parametrize(
    ("host", "warns"), [("2001:db8::1:443", True), ("2001:db8::1", False), ("[2001:db8::1]:443", False)]
)
def test_ambiguous_ipv6_address_without_port_is_warned_about(folder: Path, host: str, warns: bool) -> None:
    plain = CONFIG[: CONFIG.index("listeners:")] + "listeners:\n"
    plain += f'  - {{name: A, bind: ":9092", advertise: "{host}", brokers: {{"1": "9101"}}}}\n'
    said = [line for line in found(folder, plain + CONFIG[CONFIG.index("quotas:") :]) if "advertise" in line]
    assert [line.partition("advertise: ")[2] for line in said] == [
        "2001:db8::1:443 is an IPv6 address without a port; if its end is meant as the port, write [2001:db8::1]:443"
    ] * warns


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("fe80::1%eth0", "fe80::1%eth0 has a zone, which is this machine's own: no other machine can use it"),
        ("2001:db8::", "2001:db8:: ends in ::, as a network does"),
        ("2001:db8::1", None),
    ],
)
def test_advertised_ipv6_address_that_no_client_reaches_is_warned_of(folder: Path, host: str, said: str | None) -> None:
    plain = CONFIG[: CONFIG.index("listeners:")] + "listeners:\n"
    plain += f'  - {{name: A, bind: ":9092", advertise: "{host}", brokers: {{"1": "9101"}}}}\n'
    lines = [line for line in found(folder, plain + CONFIG[CONFIG.index("quotas:") :]) if "advertise" in line]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


NO_LOGIN = (
    "the brokers ask for a login, and the proxy has none: after startup it knows only the brokers of bootstrap, "
    "until a client has logged in there"
)


OR_KEEP = "or set cluster.state: a file that keeps the brokers for the next start"


def test_a_state_file_says_who_the_brokers_are(folder: Path) -> None:
    login = CONFIG[CONFIG.index("  sasl:") : CONFIG.index("listeners:")]
    kept = CONFIG.replace(login, "  state: brokers.json\n")
    assert found(folder, kept) == []
    (folder / "brokers.json").write_text('{"version": 1, "routes": []}')
    assert found(folder, kept) == []
    (folder / "brokers.json").write_text("{")
    (problem,) = found(folder, kept)
    assert "cluster.state: " in problem
    assert problem.endswith("brokers.json is ignored: it is not JSON; delete it: it will be rewritten")
    (folder / "brokers.json").unlink()
    (folder / "brokers.json").mkdir()
    (problem,) = found(folder, kept)
    assert not problem.startswith("warning")
    assert "is a directory; name a file in it" in problem


def test_sasl_listener_without_cluster_login_is_warned_about(folder: Path) -> None:
    login = CONFIG[CONFIG.index("  sasl:") : CONFIG.index("listeners:")]
    assert found(folder, CONFIG.replace(login, "")) == [
        f"warning: sluice.yaml:13:21: listeners[0].authentication: {NO_LOGIN}; add sasl to cluster, {OR_KEEP}"
    ]
    assert found(folder, CONFIG.replace(login, "").replace("authentication: sasl", "authentication: none")) == []


def test_the_route_of_a_listener_is_looked_at_too(folder: Path) -> None:
    own = "    cluster: {bootstrap: ['b:1'], tls: {ca: none.pem}}\n    authentication:"
    assert found(folder, CONFIG.replace("    authentication:", own)) == [
        ":17:45: listeners[0].cluster.tls.ca: none.pem cannot be read: no such file or directory",
        (
            f"warning: sluice.yaml:18:21: listeners[0].authentication: {NO_LOGIN}; "
            f"add sasl to the cluster of this listener, {OR_KEEP}"
        ),
    ]


def test_variables_are_not_expanded(folder: Path) -> None:
    expected = "is taken literally; no variables are expanded: write the value itself"
    named = CONFIG.replace("(.*?)", "(?<name>.*?)").replace("$1/L", "${name}/L")
    assert found(folder, named.replace("name: demo", 'name: "${CLUSTER}"')) == [
        f"warning: sluice.yaml:2:9: cluster.name: '${{CLUSTER}}' {expected}"
    ]
    away, warning = found(folder, CONFIG.replace("password_file: password", "password_file: $DIR/password"))
    assert away.startswith(":11:20: cluster.sasl.password_file: $DIR/password: no such file")
    assert warning == f"warning: sluice.yaml:11:20: cluster.sasl.password_file: '$DIR/password' {expected}"


OTHER = """\
  - {name: OTHER, bind: "127.0.0.2:9093", advertise: Kafka.example.com, brokers: {0: 9100}}
quotas: """


def test_listeners_advertising_the_same_addresses_are_warned_about(folder: Path) -> None:
    (line,) = found(folder, CONFIG.replace("quotas: ", OTHER))
    assert line.startswith("warning: sluice.yaml:25:54: listeners[1].advertise: clients of listener SASL_SSL are told ")
    assert found(folder, CONFIG.replace("quotas: ", OTHER.replace("9093", "9094"))) == []


def test_broken_quota_file_and_settings_are_both_reported(folder: Path) -> None:
    (folder / "quotas.yaml").write_text("quotas: 1\n")
    (folder / "chain.pem").unlink()
    assert [line.split(": ")[1] for line in found(folder)] == ["listeners[0].tls.certificate", "quotas"]
    assert [line.split(": ")[1] for line in found(folder, "x: 1\n" + CONFIG)] == ["x", "quotas"]


NOBODY = """\
cluster: {name: demo, bootstrap: ["b:1"]}
listeners:
  - {name: A, bind: ":9092", advertise: h, brokers: {0: 9100}}
quotas: {store: {path: quotas.yaml}}
"""
USERS = """\
quotas:
  - {entity: {user: ANONYMOUS}, producer_byte_rate: 1MB}
  - {entity: {user: {default: true}}, producer_byte_rate: 1MB}
  - {entity: {user: alice}, producer_byte_rate: 1MB}
  - {entity: {user: bob, client-id: x}, producer_byte_rate: 1MB}
"""


def test_user_quotas_without_authenticating_listener_are_warned_about(folder: Path) -> None:
    (folder / "quotas.yaml").write_text(USERS)
    (line,) = found(folder, NOBODY)
    assert line.startswith(
        "warning: quotas.yaml:4:1: quotas: a quota of a user, and 1 more, but no listener authenticates: "
        "clients that do not log in are ANONYMOUS; write authentication: sasl "
    )
    sasl = NOBODY.replace("advertise: h", "advertise: h, authentication: sasl")
    assert not any("quotas.yaml" in line for line in found(folder, sasl))
    (folder / "quotas.yaml").write_text("".join(USERS.splitlines(keepends=True)[:3]))
    assert found(folder, NOBODY) == []


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, "admin.token_file: token: no such file or directory"),
        (b"\n", "admin.token_file: token is empty; write one into it: openssl rand -hex 32"),
        (b"short\n", "admin.token_file: token has 5 bytes, and can be guessed; write one into it"),
    ],
)
def test_missing_empty_or_short_admin_token_is_reported(folder: Path, token: bytes | None, expected: str) -> None:
    if token is not None:
        secret(folder / "token", token)
    (said,) = found(folder, CONFIG + "admin: {token_file: token}\n")
    assert expected in said


def test_each_token_of_access_is_checked(folder: Path) -> None:
    secret(folder / "token", b"short")
    (said,) = found(folder, CONFIG + "admin: {access: [{name: ops, token_file: token}]}\n")
    assert "admin.access[0].token_file: token has 5 bytes, and can be guessed" in said


def test_tokens_that_readers_send_in_cleartext_are_a_warning(folder: Path) -> None:
    secret(folder / "token", b"0123456789abcdef")
    access = "access: [{name: ops, token_file: token}]"
    assert found(folder, CONFIG + f"admin: {{{access}}}\n") == []
    (said,) = found(folder, CONFIG + f'admin: {{bind: ":9404", {access}}}\n')
    assert "admin.access: sends tokens, and the state of clients, in cleartext; add admin.tls" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "admin.tls.certificate: is not for kafka.example.com, only for other.example: other instances refuse it"),
        (", client_ca: nothing, client_authentication: required", "admin.tls.client_ca: nothing cannot be read"),
    ],
)
def test_tls_of_the_admin_port_is_checked(folder: Path, options: str, said: str) -> None:
    show(folder, "admin", AUTHORITY.issue_cert("other.example"))
    secret(folder / "owners.secret", b"0123456789abcdef")
    tls = f"tls: {{certificate: admin.pem, key: admin.key{options}}}"
    owners = "owners: {group: sluice, instance: a, secret_file: owners.secret}\n"
    lines_ = found(folder, CONFIG + owners + f'admin: {{bind: ":9404", {tls}}}\n')
    assert any(said in line for line in lines_), lines_


def test_byte_rates_below_a_batch_a_second_are_one_warning(folder: Path) -> None:
    text = "quotas:\n  - {entity: {user: a}, producer_byte_rate: 16KiB}\n"
    text += "  - {entity: {user: b}, producer_byte_rate: 10KiB, consumer_byte_rate: 8KiB}\n"
    (folder / "quotas.yaml").write_text(text)
    (line,) = found(folder)
    assert line.startswith(
        "warning: quotas.yaml:3:1: quotas: a byte rate below one batch of 16 KiB (batch.size) a second"
    )
    assert "held for up to 2 seconds after each (2 times in this file); is the unit right?" in line


@pytest.mark.parametrize(
    ("exempt", "expected"),
    [
        ("users: [mirror], networks: [10.0.0.0/8]", None),
        ("client_ids: [tool]", "quotas.exempt.client_ids: any client can claim any client-id"),
        ("users: [ANONYMOUS]", "quotas.exempt.users[0]: exempts every client that does not log in"),
        ("users: [User:mirror]", "quotas.exempt.users[0]: 'User:mirror' begins with the type of a principal"),
        ("networks: [0.0.0.0/0]", "quotas.exempt.networks[0]: 0.0.0.0/0 is every address"),
        ("networks: [10.0.0.1/8]", "quotas.exempt.networks[0]: '10.0.0.1/8' is an address in a network"),
    ],
)
def test_exemptions_that_anyone_can_claim_are_warned_about(folder: Path, exempt: str, expected: str | None) -> None:
    said = found(folder, CONFIG.replace("quotas.yaml}", f"quotas.yaml}}, exempt: {{{exempt}}}"))
    assert len(said) == (expected is not None)
    assert all(expected in line for line in said if expected is not None)


@pytest.mark.parametrize(
    ("admins", "expected"),
    [
        ("[]", None),
        ("[alice, CN=ops]", None),
        ("[alice, ANONYMOUS]", "quotas.admins[1]: lets any unauthenticated client change all quotas; name users"),
        ("[User:alice]", "quotas.admins[0]: 'User:alice' begins with the type of a principal"),
        ('["sluice:GSSAPI"]', "quotas.admins[0]: 'sluice:GSSAPI' stands for many clients"),
        ("alice", "quotas.admins: must be a list"),
    ],
)
def test_invalid_or_anonymous_quota_admins_are_reported(folder: Path, admins: str, expected: str | None) -> None:
    said = found(folder, CONFIG.replace("quotas.yaml}", f"quotas.yaml}}, admins: {admins}"))
    assert len(said) == (expected is not None)
    assert all(expected in line for line in said if expected is not None)


RULES = """\
groups: {tenant: [alice]}
caps:
  - {entity: {user-group: tenant}, producer_byte_rate: 50MiB}
  - {entity: {client-id: {prefix: app-}}, producer_byte_rate: 20MiB, mode: shadow}
quotas:
  - {entity: {user: {default: true}}, producer_byte_rate: 10MiB}
  - {entity: {client-id: {prefix: team-}}, consumer_byte_rate: 1MiB}
"""


def test_quotas_that_are_elsewhere_are_not_called_none(folder: Path) -> None:
    """`check` opens no connection."""
    (folder / "sluice.yaml").write_text(
        'cluster: {name: c, bootstrap: ["127.0.0.1:1"]}\n'
        'listeners: [{name: P, bind: "127.0.0.1:2", advertise: 127.0.0.1, brokers: {"1": 3}}]\n'
        'quotas: {store: {type: zookeeper, connect: "127.0.0.1:1"}}\n'
    )
    report = check(folder / "sluice.yaml", NOW_S)
    assert report.lines("it") == ["it: ok (quotas in zookeeper not checked, 1 listener)"]


def test_broker_port_without_fixed_owner_is_warned_about(folder: Path) -> None:
    config = (
        'cluster: {name: c, bootstrap: ["b:9092"]}\n'
        'listeners: [{name: A, bind: ":9092", advertise: a.test, brokers: {"0-9": "9100-9109"}}]\n'
        'owners: {instance: one, fixed: {one: "IDS"}}\nquotas: {store: {type: file, path: quotas.yaml}}\n'
    )
    assert [line for line in found(folder, config.replace("IDS", "0-4, 5-9")) if "owner" in line] == []
    (said,) = [line for line in found(folder, config.replace("IDS", "0-4, 6-9")) if "owner" in line]
    assert said.startswith("warning: sluice.yaml:3:32: ")
    assert "owners.fixed: broker 5 has a port, and no owner" in said
