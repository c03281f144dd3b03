"""A cluster store under test, and the one who changes quotas beside it as any other client would."""

from collections.abc import Mapping, Sequence
from time import sleep

from config.units import Address
from protocol.client_quotas import (
    Altering,
    Described,
    Describing,
    Named,
    Op,
    QuotaEntry,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from protocol.requests import Request
from proxy.brokers.persistent_connection import Access
from proxy.control.cluster_store import ClusterStore
from quotas.entities import Entity
from tests.harness.gate import Gate
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.wire import Connection
from tests.quotas.stores.contract import Harness, Limits

POLL_MS = 100


class ClusterHarness(Harness):
    """Asks the broker itself; the store comes to it through a gate, at the address that the broker tells."""

    def __init__(self, cluster: KafkaCluster, gate: Gate) -> None:
        self.gate = gate
        endpoint = cluster.nodes[0].endpoints["PLAIN"]
        self._connection = Connection(endpoint.direct, 30.0)
        self.access = Access((Address(endpoint.guarded.host, endpoint.guarded.port),))
        self.store = ClusterStore(self.access, poll_ms=POLL_MS)

    def close(self) -> None:
        self.store.close()
        self.put({})
        self._connection.close()

    def put(self, limits: Limits) -> None:
        self.gate.open()
        wanted = {named(entity): {kind.value: limit for kind, limit in of.items()} for entity, of in limits.items()}
        now = {each.entity: dict(each.limits) for each in self.described()}
        entries = []
        for entity in {**now, **wanted}:
            before, after = now.get(entity, {}), wanted.get(entity, {})
            ops = [Op(key, None) for key in before.keys() - after.keys()]
            ops += [Op(key, limit) for key, limit in after.items() if before.get(key) != limit]
            if ops:
                entries.append(QuotaEntry(entity, tuple(ops)))
        self.alter(entries)
        # The broker follows its controller.
        wait_until(lambda: {each.entity: dict(each.limits) for each in self.described()}, equals=wanted)

    def alter(self, entries: Sequence[QuotaEntry]) -> None:
        results = read_altered(self._ask(alter_request(Altering(tuple(entries)))))
        assert [each for each in results if each.error_code] == []

    def put_raw(self, entity: Mapping[str, str], name: str, value: str) -> None:
        raise NotImplementedError("a broker takes nothing that is no quota")

    def take_away(self) -> None:
        self.gate.shut()

    def content(self) -> object:
        return sorted((sorted(map(str, each.entity)), sorted(each.limits)) for each in self.described())

    def pause(self) -> None:
        sleep(POLL_MS / 1000)

    def described(self) -> Sequence[Described]:
        return [
            each._replace(entity=tuple(sorted(each.entity, reverse=True)))
            for each in read_described(self._ask(describe_request(Describing()))).entries
        ]

    def _ask(self, request: Request) -> bytes:
        return self._connection.exchange(request.frame("harness", 1))


def named(entity: Entity) -> tuple[Named, ...]:
    """Return an entity as it is described, its parts in one order."""
    parts = (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
    return tuple((kind, name if isinstance(name, str) else None) for kind, name in parts if name is not None)
