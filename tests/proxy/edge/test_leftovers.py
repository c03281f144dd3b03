"""What is left of connections that are over: nothing that only the garbage collector would find.

With TLS the library's own objects know each other, and what they were made in.
"""

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from proxy.edge.arrival import Arrival
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.wires import BrokerWire, ClientWire
from proxy.identity.sasl import SaslObserver
from proxy.session.admission import Ticket
from proxy.session.request_stream import RequestStream
from proxy.session.response_stream import ResponseStream
from proxy.session.session import Session
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import client, front
from tests.proxy.playbook import list_offsets

pytestmark = pytest.mark.asyncio

KINDS = (
    *(Arrival, ConnectionSlot, ClientWire, BrokerWire),
    *(Session, RequestStream, ResponseStream, Ticket, SaslObserver),
)


@pytest.fixture
def collected_by_nobody() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def there() -> dict[str, int]:
    """How many there are of each kind."""
    counted = Counter(map(type, gc.get_objects()))
    return {kind.__name__: counted[kind] for kind in KINDS}


@pytest.mark.long
@pytest.mark.usefixtures("collected_by_nobody")
@pytest.mark.parametrize("by", ["client", "broker"])
async def test_connections_that_are_over_need_no_collector(by: str) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy:
            before = there()
            for _ in range(2):
                async with client(proxy.port_1) as asking:
                    await asking.ask(list_offsets(7))
                    if by == "broker":
                        one.drop()
                        assert await asking.closed()
            await until(there, equals=before)
