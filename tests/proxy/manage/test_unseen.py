"""Users with quotas that no client has used: counted by the engine, shown as metrics, found by lint."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.manage.linting import users_unseen
from proxy.snapshot import Snapshot
from quotas.engine import Engine, Window
from quotas.entities import Default, Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import StoreError
from tests.proxy.manage.run import quotas
from tests.proxy.snapshots import EMPTY, rendered

RATE = QuotaKind.PRODUCER_BYTE_RATE
ODD = 'a"b\\c\nd'


def policy(*users: str) -> Policy:
    return Policy({Entity(user=user): {RATE: 1e6} for user in users} | {Entity(user=Default.DEFAULT): {RATE: 1e6}})


@contextmanager
def admin_port(page: bytes, status: int = 200) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shown(snapshot: Snapshot) -> bytes:
    return rendered(Renderer(divide(20_000)), snapshot)


def test_a_user_is_unseen_until_a_client_is_that_user() -> None:
    engine = Engine(policy("alice", "bob"), Window())
    assert engine.unseen() == ["alice", "bob"]
    engine.resolve("alice", "app", RATE, 1)
    engine.resolve("carol", "app", RATE, 1)
    assert engine.unseen() == ["bob"]
    engine.apply(policy("alice", "bob", "dave"), 0)
    assert engine.unseen() == ["bob", "dave"], "who was seen stays seen"
    engine.apply(policy("alice"), 0)
    assert engine.unseen() == []


def test_group_member_without_traffic_is_unseen() -> None:
    group = Policy({Entity(user=Group("g")): {RATE: 1e6}}, groups={"g": ("alice", "bob")})
    engine = Engine(group, Window())
    engine.resolve("bob", "app", RATE, 1)
    assert engine.unseen() == ["alice"]


def test_metrics_and_lint_agree() -> None:
    users = ["alice", ODD, *(f"user-{number:03}" for number in range(200))]
    with admin_port(shown(replace(EMPTY, unseen_users=users))) as url:
        assert users_unseen(url) == users[:100]
    with admin_port(shown(EMPTY)) as url:
        assert users_unseen(f"{url}/") == []


def test_lint_names_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.yaml").write_text(
        "quotas:\n"
        "  - {entity: {user: alice}, producer_byte_rate: 1MiB}\n"
        "  - {entity: {user: bob}, producer_byte_rate: 1MiB}\n"
        "  - {entity: {user-group: g}, producer_byte_rate: 1MiB}\n"
        "groups: {g: [carol]}\n"
    )
    with admin_port(shown(replace(EMPTY, unseen_users=["alice", "carol"]))) as url:
        done = quotas("lint", "--file", "q.yaml", "--admin", url, "--strict")
    assert done.exit_code == 1
    first, second, last = done.stdout.splitlines()
    assert first.startswith("q.yaml:2: user-never-seen: user=alice: no client has used this user name")
    assert "user-never-seen: in the group g: no client has used the name carol" in second
    assert last == "q.yaml: 2 findings (3 rules)"


@pytest.mark.parametrize(
    ("page", "status", "said"), [(b"", 404, "does not answer"), (b"sluice_ready 1\n", 200, "is it this version")]
)
def test_lint_with_admin_port_not_answering_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: bytes, status: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.yaml").write_text("quotas: []\n")
    with admin_port(page, status) as url:
        done = quotas("lint", "--file", "q.yaml", "--admin", url)
    assert (done.exit_code, said in done.stderr) == (2, True)
    with pytest.raises(StoreError, match="is not a URL"):
        users_unseen("file:///etc/passwd")
