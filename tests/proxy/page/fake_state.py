"""A state API by hand, in the shapes of the real one, with names that try to break a page."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from proxy.checks.explain import ExplainedRow, LevelRow, RuleRow
from proxy.state.answers import as_json

AS_OF = "2026-03-01T12:00:05Z"
SCRIPT = "<script>document.title='hacked'</script>"
LONG = "long-" + "x" * 200
CONTROL = "tab\there\x07\x1b[31m\u202eevil"
SURROGATE = "half\ud800"
ARABIC = "مستهلك-الطلبات"
QUOTED = "\" onmouseover=alert(1) '&amp;"
HOSTILE = (SCRIPT, LONG, CONTROL, SURROGATE, ARABIC, QUOTED)


def throttled(user: str, client_id: str = "app", **other: Any) -> dict[str, Any]:
    return {
        "kind": "producer_byte_rate",
        "user": user,
        "client_id": client_id,
        "broker": 1,
        "listener": "PLAIN",
        "rule": f"user={user}",
        "limit": 1048576.0,
        "used": 1300000.0,
        "ratio": 1.24,
        "wanted": 5000000.0,
        "owed_ms": 4200,
        "waiting": 2,
        "until": "2026-03-01T12:00:09Z",
        "peers": ["10.1.2.3:50412", "10.1.2.4:50413"],
        "more_peers": 0,
        "mode": "enforce",
        "instance": None,
        "worker": None,
    } | other


def client(user: str, client_id: str | None = "app", **other: Any) -> dict[str, Any]:
    return {
        "listener": "PLAIN",
        "user": user,
        "client_id": client_id,
        "connections": 12,
        "is_throttled": False,
        "bytes_in_per_s": 873000.0,
        "bytes_out_per_s": 2100.0,
        "kind": "producer_byte_rate",
        "broker": 1,
        "rule": f"user={user}",
        "used": 870000.0,
        "limit": 1048576.0,
        "ratio": 0.83,
        "throttled_share_1m": 0.0,
        "instance": None,
        "worker": None,
    } | other


def usage(user: str, client_id: str = "app") -> dict[str, Any]:
    start = datetime(2026, 3, 1, 11, tzinfo=UTC)
    points = [
        {
            "at": (start + timedelta(minutes=minute)).isoformat(),
            "bytes_in_per_s": 100000.0 * (minute % 13),
            "bytes_out_per_s": 1000.0 * minute,
            "ratio": None if minute < 3 else minute % 17 / 14,
            "throttled_share": 0.4 if minute % 17 > 14 else 0.0,
        }
        for minute in range(60)
    ]
    of = {"user": user, "client_id": client_id, "listener": "PLAIN", "worker": None, "instance": None}
    return {**of, "bytes_per_s": 600_000.0, "points": points}


class FakeState:
    """Answers as the state API; tests change the lists."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.instance: dict[str, Any] = {
            "version": "0.1.0",
            "build": "pure",
            "instance": None,
            "cluster": "demo",
            "mode": "enforce",
            "mode_source": "configuration",
            "started_at": "2026-03-01T09:00:00Z",
            "is_ready": True,
            "reasons": [],
            "quotas_loaded_at": "2026-03-01T09:00:00Z",
        }
        self.owners = dict.fromkeys(("instance", "boot", "state", "epoch", "age_s", "owners", "others", "error"))
        self.instances: list[dict[str, Any]] = []
        self.items: dict[str, list[dict[str, Any]]] = {
            "throttled": [throttled("greedy")],
            "clients": [
                client("greedy", is_throttled=True, ratio=1.24, throttled_share_1m=0.31),
                client("alice"),
                client("bob", None),
            ],
            "brokers": [
                {"node_id": 1, "host": "kafka-1.example", "port": 9092, "is_reachable": True, "owner": None}
                | {"worker": 0, "load_ms_per_s": 12.3, "connections": 24, "instance": None, "error": None},
                {"node_id": 2, "host": "kafka-2.example", "port": 9092, "is_reachable": False, "owner": None}
                | {"worker": None, "load_ms_per_s": None, "connections": 0, "instance": None, "error": None},
            ],
            "workers": [
                {"instance": None, "worker": 0, "is_up": True, "restarts": 0, "cpu_s": 754.2, "connections": 24},
                {"instance": None, "worker": 1, "is_up": False, "restarts": 3, "cpu_s": 2.5, "connections": None},
            ],
            "connections": [
                {"peer": "10.1.2.3:50412", "listener": "PLAIN", "broker": 1, "user": "greedy", "client_id": "app"}
                | {"authenticated": True, "mechanism": "PLAIN"}
                | {"connected_at": "2026-03-01T11:00:00Z", "instance": None, "worker": None}
                | {"waits_for": {"kind": "producer_byte_rate", "rule": "user=greedy", "owed_ms": 4200}},
                {"peer": "[2001:db8::1]:50413", "listener": "PLAIN", "broker": None, "user": "greedy"}
                | {"authenticated": True, "mechanism": None}
                | {"client_id": "app", "connected_at": "2026-03-01T12:00:00Z"}
                | {"waits_for": None, "instance": None, "worker": None},
            ],
            "quotas": [
                {"rule": "user=greedy", "user": "greedy", "client_id": None, "proposed": None, "instance": None}
                | {"entity": {"user": "greedy"}, "kind": "producer_byte_rate", "limit": 1048576, "scope": "broker"}
                | {"mode": "enforce", "source": "file /etc/sluice/quotas.yaml:3", "loaded_at": AS_OF}
                | {"changed_at": AS_OF, "changed_by": "admin"},
                {"rule": f"user=<default>, client-id={SCRIPT}", "user": None, "client_id": SCRIPT, "proposed": None}
                | {
                    "instance": None,
                    "entity": {"user": {"default": True}, "client-id": SCRIPT},
                    "kind": "request_percentage",
                }
                | {"limit": 50, "scope": "broker", "mode": "shadow", "source": "file quotas.yaml", "loaded_at": AS_OF}
                | {"changed_at": None, "changed_by": None},
            ],
            "changes": [
                {"at": AS_OF, "who": "admin", "peer": "10.0.0.9:1234", "quota": "user=greedy", "store": "file"}
                | {"client_id": None, "instance": None}
                | {"kind": "producer_byte_rate", "old": None, "new": 1048576.0},
            ],
            "usage": [usage("greedy"), usage("alice")],
        }
        rule = RuleRow("user=greedy", 1048576.0, "quotas.yaml:3", "enforce", scope="broker", counter="user=greedy")
        levels = (
            LevelRow("user=greedy, client-id=app", None, None, wins=False, is_reached=True),
            LevelRow("user=greedy", 1048576.0, "quotas.yaml:3", wins=True, is_reached=True),
            LevelRow("user=<default>", 5242880.0, "quotas.yaml:4", wins=False, is_reached=False),
        )
        cap = rule._replace(rule="cap user=greedy", limit=9e6, source="quotas.yaml:9")
        self.explained: list[dict[str, Any]] = as_json(
            [
                ExplainedRow("producer_byte_rate", *rule, "the most specific", levels, (cap,)),
                ExplainedRow("consumer_byte_rate", *RuleRow(scope="broker"), "", (), ()),
            ]
        )

    async def ask(self, resource: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append((resource, dict(parameters)))
        if resource == "instance":
            return dict(self.instance)
        if resource == "owners":
            return dict(self.owners)
        if resource == "explain":
            return {"items": self.explained}
        found = [each for each in self.items[resource] if _is_wanted(each, parameters)]
        offset, limit = int(parameters.get("offset", 0)), int(parameters.get("limit", 100))
        answer = {"as_of": AS_OF, "total": len(found), "offset": offset, "items": found[offset : offset + limit]}
        return answer | ({"instances": self.instances} if "all" in parameters else {})


def _is_wanted(item: Mapping[str, Any], parameters: Mapping[str, str]) -> bool:
    q = parameters.get("q", "").casefold()
    return all(parameters.get(name, item.get(name)) == item.get(name) for name in ("user", "client_id")) and (
        not q or any(q in str(item.get(name, "")).casefold() for name in ("user", "client_id", "peer"))
    )
