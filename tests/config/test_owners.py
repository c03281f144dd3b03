"""The owners section: who owns which broker, and the addresses of all instances."""

from pathlib import Path

import pytest

from config.loader import load_settings
from config.settings import Settings
from config.units import Address
from tests.config.loading import problems

PORTS = '{name: PLAIN, bind: ":9092", advertise: ADVERTISE, brokers: {"0-9": "9100-9109"}}'
HOSTS = (
    '{name: TLS, bind: ":9093", advertise: kafka.test, broker_host: "b{node_id}-INSTANCE.test", '
    "tls: {certificate: c.pem, key: k.pem}}"
)


def written(owners: str, *listeners: str) -> str:
    rows = "".join(f"- {each}\n" for each in listeners or [PORTS.replace("ADVERTISE", "a.test")])
    return (
        f'cluster: {{name: c, bootstrap: ["b:9092"]}}\nlisteners:\n{rows}'
        f"owners: {owners}\nquotas: {{store: {{type: file, path: q.yaml}}}}\n"
    )


def loaded(file: Path, owners: str, *listeners: str) -> Settings:
    file.write_text(written(owners, *listeners))
    return load_settings(file)


def told(settings: Settings, instance: str, listener: str, node_id: int) -> Address | None:
    assert settings.owners is not None
    assert settings.owners.fixed is not None
    return settings.owners.fixed.instances[instance].advertise[listener].advertised(node_id)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_every_broker_has_its_owner(file: Path) -> None:
    owners = '{instance: a, fixed: {a: "0-2, 7", b: {brokers: "3-5", advertise: {PLAIN: b.test}}}}'
    settings = loaded(file, owners)
    assert settings.owners is not None
    fixed = settings.owners.fixed
    assert fixed is not None
    assert [fixed.owner_of(node_id) for node_id in (0, 2, 3, 5, 6, 7)] == ["a", "a", "b", "b", None, "a"]
    assert told(settings, "a", "PLAIN", 1) == Address("a.test", 9101)
    assert told(settings, "b", "PLAIN", 3) == Address("b.test", 9103)
    assert told(settings, "b", "PLAIN", 70) is None


def test_another_instance_may_have_other_ports(file: Path) -> None:
    there = '{PLAIN: {host: a.test, brokers: {"3-5": "9203-9205"}}}'
    settings = loaded(file, f'{{instance: a, fixed: {{a: "0-2", b: {{brokers: "3-5", advertise: {there}}}}}}}')
    assert told(settings, "b", "PLAIN", 4) == Address("a.test", 9204)


@pytest.mark.parametrize("instance", ["a", "b"])
def test_instance_placeholder_gives_each_instance_its_addresses(file: Path, instance: str) -> None:
    listeners = PORTS.replace("ADVERTISE", '"{instance}.test"'), HOSTS.replace("INSTANCE", "{instance}")
    settings = loaded(file, f'{{instance: {instance}, fixed: {{a: "0-2", b: "3-5"}}}}', *listeners)
    for name in ("a", "b"):
        assert told(settings, name, "PLAIN", 4) == Address(f"{name}.test", 9104)
        assert told(settings, name, "TLS", 4) == Address(f"b4-{name}.test", 9093)
    plain, tls = settings.listeners
    assert plain.advertised(4) == Address(f"{instance}.test", 9104)
    assert tls.advertised(4) == Address(f"b4-{instance}.test", 9093)


def test_a_host_name_for_each_broker_can_be_written_too(file: Path) -> None:
    there = '{TLS: "b{node_id}-b.test:9443"}'
    owners = f'{{instance: a, fixed: {{a: "0", b: {{brokers: "3", advertise: {there}}}}}}}'
    assert told(loaded(file, owners, HOSTS.replace("INSTANCE", "a")), "b", "TLS", 3) == Address("b3-b.test", 9443)


def test_the_host_name_is_the_default_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    settings = loaded(file, '{fixed: {node-7: "0-9"}}')
    assert settings.owners is not None
    assert settings.owners.instance == "node-7"


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        ("", "owners: has no settings; it takes instance, group, secret_file"),
        ("{instance: a}", "owners.fixed: is missing; write either group"),
        (
            '{instance: a, fixed: "0-2"}',
            'owners.fixed: must be instances and node ids; write it like {edge-1: "0-2", edge-2: "3-5"}',
        ),
        ("{instance: a, fixed: {}}", 'owners.fixed: names no instance; write {edge-1: "0-2", edge-2: "3-5"}'),
        (
            '{instance: a, fixed: {a: "0-2", b: "2-5"}}',
            "owners.fixed.b: broker 2 already belongs to a; give each broker one owner",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {brokers: "1", advertise: {PLAIN: b.test}}}}',
            "owners.fixed.b.brokers: broker 1 already belongs to a; give each broker one owner",
        ),
        ("{instance: a, fixed: {a: 0-x}}", "owners.fixed.a: 'x' is not a whole number"),
        (
            '{instance: c, fixed: {a: "0-2"}}',
            "owners.fixed: does not have this instance, c (owners.instance); add it; known here: a",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: "3"}}',
            "owners.fixed.b: has no address at listener PLAIN; write advertise: {PLAIN: b.example.com}",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {brokers: "3", advertise: {PLAN: b.test}}}}',
            "owners.fixed.b.advertise.PLAN: is not a listener; did you mean PLAIN?",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {brokers: "3", advertise: {PLAIN: "b.test:9"}}}}',
            "owners.fixed.b.advertise.PLAIN: must be a host: ports of brokers are those of the listener; write",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {brokers: "3", advertise: {PLAIN: a.test}}}}',
            "owners.fixed.b: has the same addresses at listener PLAIN as a; give each instance",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {broker: "3", advertise: {PLAIN: b.test}}}}',
            "owners.fixed.b.broker: is unknown here; did you mean brokers?",
        ),
        (
            '{instance: a, fixed: {a: "0-2", b: {advertise: {PLAIN: b.test}}}}',
            "owners.fixed.b: brokers is missing; write it like {brokers:",
        ),
    ],
)  # fmt: skip
def test_invalid_owners_section_is_refused_with_its_fix(file: Path, owners: str, said: str) -> None:
    found = problems(file, written(owners))
    assert any(each.partition(": ")[2].startswith(said) for each in found), found


def test_a_host_name_for_each_broker_has_to_name_the_instance(file: Path) -> None:
    listener = HOSTS.replace("INSTANCE", "x")
    (found,) = problems(file, written('{instance: a, fixed: {a: "0", b: "1"}}', listener))
    assert "owners.fixed.b: has no address at listener TLS" in found
    assert "or {instance} into broker_host of the listener" in found
    wrong = '{instance: a, fixed: {a: "0", b: {brokers: "1", advertise: {TLS: b.test}}}}'
    (found,) = problems(file, written(wrong, listener))
    assert "owners.fixed.b.advertise.TLS: is no host name for each broker" in found


def test_the_instance_in_an_address_needs_the_section(file: Path) -> None:
    listeners = PORTS.replace("ADVERTISE", '"{instance}.test"'), HOSTS.replace("INSTANCE", "{instance}")
    content = written("{}", *listeners).replace("owners: {}\n", "")
    assert [each.split(": ")[1] for each in problems(file, content)] == [
        "listeners[0].advertise",
        "listeners[1].broker_host",
    ]


def test_a_name_that_cannot_be_part_of_a_host_is_refused_where_it_is_one(file: Path) -> None:
    found = problems(file, written('{instance: a b, fixed: {a b: "0"}}', PORTS.replace("ADVERTISE", '"{instance}.t"')))
    assert any("'a b.t' is not a host name" in each for each in found)
