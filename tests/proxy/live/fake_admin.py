"""An admin port that answers with given rows: it sorts, filters and cuts them as the proxy's own does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from proxy.checks.explain import ExplainedRow, LevelRow, RuleRow
from proxy.state.answers import as_json

AS_OF = "2026-11-26T16:00:00Z"


def throttled(user: str = "alice", client_id: str | None = "web", **given: Any) -> dict[str, Any]:
    return {
        "kind": "producer_byte_rate",
        "user": user,
        "client_id": client_id,
        "broker": 1,
        "listener": "PLAIN",
        "rule": f"user={user}",
        "limit": 1048576.0,
        "used": 2097152.0,
        "ratio": 2.0,
        "wanted": 5242880.0,
        "owed_ms": 3200,
        "waiting": 4,
        "until": "2026-11-26T16:00:03.200Z",
        "peers": ["10.0.0.1:50000", "10.0.0.2:50001"],
        "more_peers": 0,
        "mode": "enforce",
        "worker": None,
        "instance": None,
        **given,
    }


def client(user: str = "alice", client_id: str | None = "web", **given: Any) -> dict[str, Any]:
    return {
        "listener": "PLAIN",
        "user": user,
        "client_id": client_id,
        "connections": 2,
        "is_throttled": False,
        "bytes_in_per_s": 1536.0,
        "bytes_out_per_s": 0.0,
        "kind": "producer_byte_rate",
        "broker": 1,
        "rule": f"user={user}",
        "used": 524288.0,
        "limit": 1048576.0,
        "ratio": 0.5,
        "throttled_share_1m": 0.25,
        "worker": None,
        "instance": None,
        **given,
    }


BROKER = {
    "node_id": 1,
    "host": "kafka-1.example.com",
    "port": 9092,
    "is_reachable": True,
    "owner": None,
    "load_ms_per_s": None,
    "connections": 2,
    "worker": None,
    "instance": None,
}
WORKER = {"worker": None, "is_up": True, "restarts": 0, "cpu_s": 12.5, "connections": 2, "instance": None}
INSTANCE = {
    "version": "0.1.0",
    "build": "pure Python",
    "instance": "edge-1",
    "cluster": "demo",
    "mode": "enforce",
    "mode_source": "configuration",
    "started_at": AS_OF,
    "is_ready": True,
    "reasons": [],
    "quotas_loaded_at": AS_OF,
}
OF_TERMS = "enforce", None, None, None
EXPLAINED = as_json(
    [
        ExplainedRow(
            "producer_byte_rate",
            *RuleRow(
                "user=alice", 1048576.0, "quotas.yaml:3", *OF_TERMS, "broker", "user=alice, whatever the client-id"
            ),
            "user is the first level with a limit",
            (
                LevelRow("user=alice, client-id=web", None, None, wins=False, is_reached=True),
                LevelRow("user=alice", 1048576.0, "quotas.yaml:3", wins=True, is_reached=True),
            ),
            (RuleRow("cap user-group=tenant", 52428800.0, None, *OF_TERMS, "broker", "user-group=tenant"),),
        ),
        ExplainedRow("consumer_byte_rate", *RuleRow(scope="broker"), "no level has a limit", (), ()),
    ]
)


class FakeAdmin:
    """The rows by name; ``asked`` has the requests: name and parameters."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.rows: dict[str, list[dict[str, Any]]] = {
            "throttled": [throttled()],
            "clients": [client()],
            "brokers": [BROKER],
            "workers": [WORKER],
        }
        self.instances: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.is_older = False

    def answer(self, name: str, query: dict[str, str]) -> tuple[int, Any]:
        self.asked.append((name, query))
        if self.is_older:
            return 404, None
        if name in ("instance", "explain"):
            return 200, INSTANCE if name == "instance" else {"as_of": AS_OF, "items": EXPLAINED}
        rows = self.rows[name]
        field = query.get("sort", "-").removeprefix("-")
        if field and rows and field not in rows[0]:
            return 400, {"error": f"sort: '{field}' is not a field to sort by; allowed: {', '.join(rows[0])}"}
        for key in ("user", "client_id"):
            rows = [row for row in rows if key not in query or (row[key] or "") == query[key]]
        rows = [row for row in rows if query.get("q", "") in f"{row.get('user')} {row.get('client_id')}"]
        if field:
            rows = sorted(rows, key=lambda row: row[field] or 0, reverse=query["sort"].startswith("-"))
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
        cut = rows[offset : offset + limit]
        answer = {"as_of": AS_OF, "total": len(rows), "offset": offset, "items": cut}
        return 200, answer | ({"instances": self.instances} if query.get("all") == "1" else {})


@contextmanager
def serve() -> Iterator[FakeAdmin]:
    """Serve on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, answer = fake.answer(parts.path.removeprefix("/api/v1/"), dict(parse_qsl(parts.query)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"not found" if answer is None else json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake = FakeAdmin(server.server_port)
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    with serve() as fake:
        yield fake
