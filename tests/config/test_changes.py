"""Which settings differ: their keys alone."""

from pathlib import Path

import pytest

from config.changes import changed_settings
from config.loader import load_settings

GOOD = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:9092"]}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a.example, brokers: {"1": "1001"}}
quotas: {store: {path: quotas.yaml}}
"""
TLS = "tls: {certificate: a.pem, key: a.key}, "


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("demo", "demo", []),
        ("quotas.yaml}", "quotas.yaml, type: file}", []),
        ("demo", "other", ["cluster.name"]),
        ("bind", TLS + "bind", ["listeners[0].tls"]),
        ("quotas: {", "limits: {connections: 5}\nquotas: {mode: shadow, ", ["quotas.mode", "limits.connections"]),
        ("9092", "9093", ["cluster.bootstrap"]),
        ("quotas: {", "usage: {topic: {}}\nquotas: {", ["usage"]),
        ("quotas: {", "drain: {delay: 1s, timeout: 30s}\nquotas: {", ["drain.delay"]),
    ],
)
def test_changed_settings_are_named_by_their_keys(tmp_path: Path, old: str, new: str, changed: list[str]) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(GOOD)
    before = load_settings(file)
    file.write_text(GOOD.replace(old, new, 1))
    after = load_settings(file)
    assert changed_settings(before, after) == changed
    assert changed_settings(after, before) == changed


def test_listeners_are_known_by_their_names_wherever_they_are(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(GOOD)
    alone = load_settings(file)
    first = "listeners:\n  - {name: C, bind: '127.0.0.1:2000', advertise: c, brokers: {'1': '2001'}}\n"
    file.write_text(GOOD.replace("listeners:\n", first))
    two = load_settings(file)
    assert changed_settings(alone, two) == ["listeners[0]"]
    assert changed_settings(two, alone) == ["listeners.C"]
    assert changed_settings(two, two.model_copy(update={"listeners": two.listeners[::-1]})) == []
    file.write_text(GOOD.replace("name: A", "name: B"))
    assert changed_settings(alone, load_settings(file)) == ["listeners[0]", "listeners.A"]
