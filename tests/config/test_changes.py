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
        ("name: A", TLS + "name: B", ["listeners[0].name", "listeners[0].tls"]),
        ("quotas: {", "limits: {connections: 5}\nquotas: {mode: shadow, ", ["quotas.mode", "limits.connections"]),
        ("9092", "9093", ["cluster.bootstrap"]),
        (
            "quotas: {",
            "  - {name: C, bind: '127.0.0.1:2000', advertise: c, brokers: {'1': '2001'}}\nquotas: {",
            ["listeners[1]"],
        ),
        ("quotas: {", "usage: {topic: {}}\nquotas: {", ["usage"]),
        ("quotas: {", "drain: {delay: 1s, timeout: 30s}\nquotas: {", ["drain.delay"]),
    ],
)
def test_the_key_of_each_is_named(tmp_path: Path, old: str, new: str, changed: list[str]) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(GOOD)
    before = load_settings(file)
    file.write_text(GOOD.replace(old, new, 1))
    after = load_settings(file)
    assert changed_settings(before, after) == changed
    assert changed_settings(after, before) == changed
