"""``sluice clients``, ``throttled``, ``explain --live`` and ``top --once``, as they are typed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proxy.cli import cli
from proxy.live import listing
from proxy.live.listing import Throttled
from proxy.usage.lately import LAST_MINUTE_MS
from tests.harness.ports import free_port
from tests.proxy.live.fake_admin import AS_OF, EXPLAINED, FakeAdmin, client, throttled


def sluice(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def rows(done: Result) -> list[dict[str, str]]:
    """Return rows by title, as a shell reads them from between the tabs."""
    assert (done.exit_code, done.stderr) == (0, "")
    head, *below = [line.split("\t") for line in done.stdout.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in below]


def test_throttled_lists_who_by_which_rule_and_until_when(admin: FakeAdmin) -> None:
    (row,) = rows(sluice("throttled", "--admin", admin.url))
    assert row == {
        "user": "alice",
        "client-id": "web",
        "kind": "producer_byte_rate",
        "broker": "1",
        "used": "2097152",
        "limit": "1048576",
        "wanted": "5242880",
        "until": "2026-11-26T16:00:03.200Z",
        "owed": "3200",
        "waiting": "4",
        "rule": "user=alice",
        "mode": "enforce",
        "listener": "PLAIN",
        "peers": "10.0.0.1:50000,10.0.0.2:50001",
    }
    admin.rows["throttled"] = []
    assert rows(sluice("throttled", "--admin", admin.url)) == []


def test_people_see_units_and_aligned_columns(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.rows["clients"].append(client("bob", None, kind="request_percentage", used=12.5, limit=50.0, ratio=0.25))
    admin.rows["clients"].append(client("new", None, kind=None, used=None, limit=None, ratio=None, rule=None))
    monkeypatch.setattr(listing, "is_for_people", lambda: True)
    done = sluice("clients", "--admin", admin.url)
    assert [line[:88].rstrip() for line in done.stdout.splitlines()] == [
        "user   client-id  kind          used    limit  ratio    1m         in    out  throttled",
        "alice  web        produce  512 KiB/s  1 MiB/s   50 %  25 %  1.5 KiB/s  0 B/s  no",
        "bob    -          request     12.5 %     50 %   25 %  25 %  1.5 KiB/s  0 B/s  no",
        "new    -          -                -        -      -  25 %  1.5 KiB/s  0 B/s  no",
    ]


def test_columns_are_sorted_by_their_titles_and_rows_are_filtered_by_the_proxy(admin: FakeAdmin) -> None:
    admin.rows["clients"] = [client("alice", bytes_in_per_s=1.0), client("alan", bytes_in_per_s=2.0), client("bob")]
    found = rows(sluice("clients", "--admin", admin.url, "--sort", "-in", "--filter", "al"))
    assert [row["user"] for row in found] == ["alan", "alice"]
    assert admin.asked == [("clients", {"sort": "-bytes_in_per_s", "q": "al", "limit": "100"})]


def test_rows_that_are_left_out_are_counted(admin: FakeAdmin) -> None:
    admin.rows["clients"] = [client(f"u{number}") for number in range(5)]
    done = sluice("clients", "--admin", admin.url, "--limit", "2")
    assert (len(done.stdout.splitlines()), done.stderr) == (3, "3 more: use --limit or --filter\n")


def test_json_is_the_answer_of_the_proxy(admin: FakeAdmin) -> None:
    answer = json.loads(sluice("throttled", "--admin", admin.url, "-o", "json").stdout)
    assert answer == {"as_of": AS_OF, "total": 1, "offset": 0, "items": [throttled()]}


def test_hostile_names_change_neither_the_terminal_nor_the_columns(admin: FakeAdmin) -> None:
    admin.rows["throttled"] = [throttled("a\tb\n\x1b[2J\u202e", "[bold]x")]
    (row,) = rows(sluice("throttled", "--admin", admin.url))
    assert (row["user"], row["client-id"]) == ("a\\tb\\n\\x1b[2J\\u202e", "[bold]x")


def test_all_instances_have_a_column_and_those_that_do_not_answer_are_named(admin: FakeAdmin) -> None:
    admin.rows["throttled"] = [throttled(instance="edge-1")]
    admin.instances = [{"instance": "edge-1", "error": None}, {"instance": "edge-2", "error": "timed out"}]
    done = sluice("throttled", "--admin", admin.url, "--all")
    assert done.stderr == "warning: instance edge-2: timed out\n"
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["instance", "edge-1"]


def test_top_prints_all_tables_when_it_is_not_on_a_terminal(admin: FakeAdmin) -> None:
    done = sluice("top", "--admin", admin.url)
    assert done.exit_code == 0
    pages = [page.splitlines() for page in done.stdout.split("\n\n")]
    assert [page[0] for page in pages] == ["# throttled", "# clients", "# brokers", "# workers"]
    assert [page[2].split("\t")[0] for page in pages] == ["alice", "alice", "1", "-"]
    assert sluice("top", "--once", "--admin", admin.url).stdout == done.stdout


def test_explain_live_shows_the_limits_in_force_and_the_present_use(admin: FakeAdmin) -> None:
    done = sluice("explain", "--live", "--admin", admin.url, "--user", "alice", "--client-id", "web")
    assert (done.exit_code, done.stderr) == (0, "")
    throttled_table, clients_table, limits = done.stdout.split("\n\n")
    assert throttled_table.splitlines()[1].split()[:6] == ["alice", "web", "produce", "1", "2", "MiB/s"]
    assert clients_table.splitlines()[1].split()[:9] == [
        "alice",
        "web",
        "produce",
        "512",
        "KiB/s",
        "1",
        "MiB/s",
        "50",
        "%",
    ]
    assert limits.splitlines() == [
        "producer_byte_rate: 1048576 bytes/s (1 MiB/s) at each broker, of user=alice (quotas.yaml:3)",
        "  why: user is the first level with a limit",
        "  counter: one for user=alice, whatever the client-id",
        "    user=alice, client-id=web        -",
        "    user=alice                 1048576  wins         quotas.yaml:3",
        "  also: 52428800 bytes/s (50 MiB/s) at each broker, of cap user-group=tenant",
        "    counter: one for user-group=tenant",
        "consumer_byte_rate: no quota (no level has a limit)",
    ]
    assert {name for name, _ in admin.asked} == {"throttled", "clients", "explain"}
    assert all(query == {"user": "alice", "client_id": "web"} for _, query in admin.asked)


def test_explain_live_as_json_and_of_a_client_that_is_not_there(admin: FakeAdmin) -> None:
    admin.rows["throttled"] = admin.rows["clients"] = []
    done = sluice("explain", "--live", "--admin", admin.url, "--user", "alice", "-o", "json")
    assert json.loads(done.stdout) == {"throttled": [], "clients": [], "limits": EXPLAINED}
    said = sluice("explain", "--live", "--admin", admin.url, "--user", "alice").stdout.splitlines()
    assert said[:4] == ["not throttled now", "", "not seen lately", ""]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--live"], "name a client"),
        (["--live", "--ip", "10.0.0.1"], "--live takes"),
        (["--live", "--user", "a", "--file", "q.yaml"], "--live takes"),
        (["--user", "a", "--admin", "http://x:1"], "--admin is for --live"),
    ],
)
def test_explain_says_what_does_not_go_together(arguments: list[str], problem: str) -> None:
    done = sluice("explain", *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_explain_without_live_is_that_of_quotas(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1MiB}\n")
    arguments = ["--file", str(tmp_path / "q.yaml"), "--user", "alice"]
    done = sluice("explain", *arguments)
    assert "producer_byte_rate: 1048576 bytes/s" in done.stdout
    assert done.stdout == sluice("quotas", "explain", *arguments).stdout
    assert sluice("explain", "-h").stdout.startswith("Usage: sluice explain ")


# ---------------------------------------------------------------------------------------------------------- --watch


class StoppedError(Exception):
    """The watch is over."""


def watched(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, *steps: Any, options: tuple[str, ...] = ()) -> Result:
    """Watch; ``steps`` are the rows (None: not reachable) at each later look, and the time in ms."""
    coming, clock = iter(steps), [0]
    monkeypatch.setattr(listing, "now_ms", lambda: clock[-1])

    def sleep(_: float) -> None:
        step = next(coming, None)
        if step is None:
            raise StoppedError
        clock.append(step[0])
        admin.is_older = step[1] is None
        admin.rows["throttled"] = step[1] or []

    monkeypatch.setattr("proxy.live.listing.time.sleep", sleep)
    done = sluice("throttled", "--admin", admin.url, "--watch", *options)
    assert isinstance(done.exception, StoppedError)
    return done


def test_watch_prints_a_line_when_a_client_starts_and_ends_being_throttled(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = throttled(), throttled("bob")
    steps = [(2000, [alice, bob]), (4000, [bob]), (6000, [alice]), (6000 + LAST_MINUTE_MS, [alice])]
    done = watched(admin, monkeypatch, *steps)
    lines = [line.split("\t")[:4] for line in done.stdout.splitlines()]
    assert lines == [
        [AS_OF, "started", "alice", "web"],
        [AS_OF, "started", "bob", "web"],
        [AS_OF, "ended", "bob", "web"],
    ]


def test_watch_as_json_lines(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    done = watched(admin, monkeypatch, (LAST_MINUTE_MS, []), options=("-o", "json"))
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"at": AS_OF, "event": "started", **throttled()},
        {"at": AS_OF, "event": "ended", **throttled()},
    ]


def test_watch_waits_for_a_proxy_that_does_not_answer(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    done = watched(
        admin, monkeypatch, (2000, None), (LAST_MINUTE_MS * 3, [throttled()]), (LAST_MINUTE_MS * 3 + 2000, [])
    )
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["started"]
    assert done.stderr.startswith(f"warning: {admin.url} has no /api/v1/throttled")


def test_the_same_client_at_two_brokers_is_two_throttles() -> None:
    seen = Throttled()
    assert [
        event for event, _ in seen.look([throttled(), throttled(broker=2), throttled(owed_ms=1, listener=None)], 0)
    ] == [
        "started",
        "started",
    ]


# ------------------------------------------------------------------------------------------------------------ errors


def test_command_without_answering_proxy_fails_with_connection_error() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = sluice("throttled", "--admin", url)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {url} does not answer: Connection refused")
    assert done.stderr.endswith("give --admin URL or --config FILE\n")


def test_older_proxy_unknown_sort_column_and_bad_url_are_errors(admin: FakeAdmin) -> None:
    done = sluice("clients", "--admin", admin.url, "--sort", "colour")
    assert done.exit_code == 1
    assert "sort: 'colour' is not a field to sort by; allowed: " in done.stderr
    admin.is_older = True
    done = sluice("clients", "--admin", admin.url)
    assert done.stderr == (
        f"Error: {admin.url} has no /api/v1/clients: is it the admin port of a Sluice of this version?\n"
    )
    done = sluice("clients", "--admin", "127.0.0.1:9404")
    assert done.stderr == "Error: --admin: '127.0.0.1:9404' is not a URL like http://127.0.0.1:9404\n"
    assert "secret" not in sluice("clients", "--admin", f"http://me:secret@127.0.0.1:{free_port()}").stderr


def test_admin_address_is_taken_from_configuration_file(admin: FakeAdmin, tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(
        'cluster: {name: demo, bootstrap: ["127.0.0.1:19092"]}\n'
        'listeners: [{name: P, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0": "9100"}}]\n'
        "quotas: {store: {path: quotas.yaml}}\n"
        f"admin: {{bind: '{admin.url.removeprefix('http://')}'}}\n"
    )
    assert len(rows(sluice("throttled", "-c", str(tmp_path / "sluice.yaml")))) == 1
    done = sluice("throttled", "-c", str(tmp_path / "missing.yaml"))
    assert (done.exit_code, done.stderr) == (2, f"{tmp_path / 'missing.yaml'}: no such file\n")


def test_top_without_textual_says_what_to_install(monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin) -> None:
    monkeypatch.setattr("proxy.live.listing.is_for_people", lambda: True)
    monkeypatch.setitem(sys.modules, "textual", None)
    done = sluice("top", "--admin", admin.url)
    assert done.exit_code == 2
    assert "pip install 'kafka-sluice[tui]'" in done.stderr
