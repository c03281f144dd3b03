"""The ``admin`` section: who may use the admin port."""

from pathlib import Path

import pytest

from config.loader import load_settings
from tests.config.loading import problems

CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:1"]}
listeners:
  - {name: PLAIN, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"1": "9100"}}
quotas: {store: {path: quotas.yaml}}
admin: """


@pytest.mark.parametrize(
    ("admin", "entries", "is_closed"),
    [
        ("{}", [], False),
        ("{token_file: t}", [("admin token", ("change",))], False),
        ("{access: [{name: ops, token_file: o, may: [change]}]}", [("ops", ("change",))], False),
        ("{access: [{name: ops, token_file: o}]}", [("ops", ("read", "change"))], True),
        (
            "{token_file: t, access: [{name: prometheus, token_file: p, may: [read]}]}",
            [("admin token", ("change",)), ("prometheus", ("read",))],
            True,
        ),
    ],
)
def test_entries_say_who_may_do_what(
    tmp_path: Path, admin: str, entries: list[tuple[str, tuple[str, ...]]], is_closed: bool
) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIG + admin)
    found = load_settings(file).admin
    assert [(each.name, each.may) for each in found.entries] == entries
    assert found.is_closed is is_closed


@pytest.mark.parametrize(
    ("admin", "said"),
    [
        ("{access: [{name: a, token_file: x}, {name: a, token_file: y}]}", "'a' is the name of another entry"),
        ("{token_file: t, access: [{name: admin token, token_file: x}]}", "is the name of another entry"),
        ("{access: [{name: a, token_file: x, may: []}]}", "admin.access[0].may: is empty; write [read]"),
        ("{access: [{name: a, token_file: x, may: [write]}]}", "admin.access[0].may"),
        ("{access: [{name: a}]}", "admin.access[0].subject: is missing; write either token_file, or subject"),
        ("{access: [{name: a, token_file: x, subject: CN=a}]}", "cannot be combined with token_file"),
        ("{access: [{name: a, subject: CN=a}]}", "admin.access[0].subject: needs clients that show a certificate"),
        ("{ca: ca.pem}", "admin.ca: has no effect without tls"),
    ],
)
def test_entries_that_cannot_be_are_refused_with_their_place(tmp_path: Path, admin: str, said: str) -> None:
    (line, *_) = problems(tmp_path / "sluice.yaml", CONFIG + admin)
    assert said in line
