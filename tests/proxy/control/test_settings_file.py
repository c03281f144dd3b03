"""What SIGHUP says of sluice.yaml: what waits for a restart, or what is wrong; and no value of it."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from config.settings import Mode, Settings
from proxy.control.settings_file import SettingsFile

pytestmark = pytest.mark.asyncio

GOOD = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:9092"], sasl: {mechanism: PLAIN, username: own-user, password_file: pw}}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a.example, brokers: {"1": "1001"}}
quotas: {store: {path: quotas.yaml}}
"""


async def no_other_mode(mode: Mode, _: str) -> None:
    assert mode == "enforce"


async def no_other_settings(settings: Settings) -> None:
    pytest.fail(f"put in force: {settings}")


async def said(folder: Path, text: str) -> list[Any]:
    file = folder / "sluice.yaml"
    (folder / "pw").write_text("canary")
    (folder / "pw").chmod(0o600)
    file.write_text(GOOD)
    running = SettingsFile(file, load_settings(file), no_other_mode, no_other_settings)
    file.write_text(text)
    with capture_logs() as logs:
        await running.compare()
    return logs


async def test_reloaded_settings_with_equal_values_log_nothing(tmp_path: Path) -> None:
    assert await said(tmp_path, "# in other words\n" + GOOD) == []


async def test_settings_that_need_restart_are_named_without_values(tmp_path: Path) -> None:
    (line,) = await said(tmp_path, GOOD.replace("own-user", "another-user").replace(":1000", ":1002"))
    assert (line["log_level"], line["settings"]) == ("warning", ["cluster.sasl.username", "listeners[0].bind"])
    assert "another-user" not in str(line)


async def test_a_mistake_is_an_error_with_its_line(tmp_path: Path) -> None:
    (line,) = await said(tmp_path, GOOD.replace("127.0.0.1:1000", "127.0.0.1:port"))
    assert (line["log_level"], "sluice.yaml:3:" in line["problem"]) == ("error", True)
    assert "listeners[0].bind" in line["problem"]


async def test_a_file_that_it_names_and_that_cannot_be_used_is_an_error_too(tmp_path: Path) -> None:
    (line,) = await said(tmp_path, GOOD.replace("password_file: pw", "password_file: gone"))
    assert (line["log_level"], "sluice.yaml:1:" in line["problem"], "gone" in line["problem"]) == ("error", True, True)


async def test_a_file_full_of_mistakes_is_a_bounded_number_of_lines(tmp_path: Path) -> None:
    lines = await said(tmp_path, GOOD + "".join(f"key{number}: 1\n" for number in range(100)))
    assert (len(lines), lines[-1]["further_problems"]) == (21, 80)


async def test_addresses_are_put_in_force_and_what_else_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    (tmp_path / "pw").write_text("canary")
    (tmp_path / "pw").chmod(0o600)
    other = '  - {name: B, bind: "127.0.0.1:2000", advertise: b, brokers: {"1": "2001"}}\nquotas:'
    file.write_text(GOOD.replace("quotas:", other))
    taken: list[Settings] = []

    async def take(settings: Settings) -> None:
        taken.append(settings)

    running = SettingsFile(file, load_settings(file), no_other_mode, take)
    file.write_text(
        GOOD.replace('{"1": "1001"}', '{"1-2": {bind: "1001-1002", advertise: "31001-31002"}}')
        .replace("a.example", "a.example:31000")
        .replace(":1000", ":1009")
        .replace("quotas:", other)
    )
    with capture_logs() as logs:
        await running.compare()
        await running.compare()
    (put,) = taken
    listener, same = put.listeners
    assert same == load_settings(file).listeners[1]
    assert (listener.name, str(listener.bind)) == ("A", "127.0.0.1:1000")
    assert (str(listener.bound(2)), str(listener.advertised(2))) == ("127.0.0.1:1002", "a.example:31002")
    changed, *restart = logs
    assert (changed["event"], changed["listeners"]) == ("addresses of listeners changed", ["A"])
    assert [line["settings"] for line in restart] == [["listeners[0].bind"]] * 2


async def test_a_listener_that_is_to_have_names_instead_of_ports_needs_a_restart(tmp_path: Path) -> None:
    names = 'broker_host: "b{node_id}.example", tls: {certificate: c, key: k}'
    file = tmp_path / "sluice.yaml"
    file.write_text(GOOD)
    old = load_settings(file)
    file.write_text(GOOD.replace('brokers: {"1": "1001"}', names))
    running = SettingsFile(file, old, no_other_mode, no_other_settings)
    with capture_logs():
        await running._take(load_settings(file))


async def test_error_in_settings_file_is_logged_once_until_it_changes(tmp_path: Path) -> None:
    """Who writes a file and sends SIGHUP has it read twice."""
    file = tmp_path / "sluice.yaml"
    (tmp_path / "pw").write_text("canary")
    (tmp_path / "pw").chmod(0o600)
    file.write_text(GOOD)
    running = SettingsFile(file, load_settings(file), no_other_mode, no_other_settings)
    told = []
    for text in (GOOD + "a: 1\n", GOOD + "a: 1\n", GOOD + "b: 1\n", GOOD, GOOD + "b: 1\n"):
        file.write_text(text)
        with capture_logs() as logs:
            await running.compare()
        told.append(len(logs))
    assert told == [1, 0, 1, 0, 1]
