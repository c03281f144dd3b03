"""A stand-in for a broker that describes and alters quotas, and does what a real one does only now and then."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from struct import pack, unpack_from

from protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altering,
    Described,
    DescribedAll,
    Result,
    altered_answer,
    described_answer,
    read_altering,
)
from protocol.table import SPECS, key_version
from tests.proxy.fake_broker import FakeBroker, client_id_of, serving
from tests.proxy.playbook import frame

API_VERSIONS, METADATA = 18, 3
DESCRIBE_V0, ALTER_V0 = SPECS[key_version(DESCRIBE, 0)], SPECS[key_version(ALTER, 0)]


class QuotaBroker(FakeBroker):
    """``quotas`` are described, with ``error`` if it is not 0; ``altering`` says what becomes of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas: list[Described] = []
        self.error = 0
        self.apis = [API_VERSIONS, METADATA, DESCRIBE, ALTER]
        self.altering: Callable[[Altering], list[Result] | None] = self.take
        """None: the connection ends without an answer."""
        self.taken = 0
        """Connections."""
        self.described = 0
        """How often."""

    def take(self, asked: Altering) -> list[Result]:
        """Make the changes, as a broker does."""
        if not asked.validate_only:
            now = {each.entity: dict(each.limits) for each in self.quotas}
            for entry in asked.entries:
                limits = now.setdefault(entry.entity, {})
                for op in entry.ops:
                    if op.value is None:
                        limits.pop(op.key, None)
                    else:
                        limits[op.key] = op.value
            self.quotas = [Described(entity, tuple(limits.items())) for entity, limits in now.items() if limits]
        return [Result(entry.entity) for entry in asked.entries]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        await super().serve(reader, writer)

    def _answer(self, payload: bytes) -> bytes | None:
        api_key, version, correlation_id = unpack_from(">hhi", payload)
        match api_key:
            case 18:
                ranges = b"".join(pack(">hhh", key, 0, 2 if key == METADATA else 1) for key in self.apis)
                return frame(pack(">ihi", correlation_id, 0, len(self.apis)) + ranges)
            case 3:
                return frame(pack(">i", correlation_id) + self._metadata(version, client_id_of(payload)))
            case 48:
                self.described += 1
                message = "as asked for" if self.error else None
                answer = DescribedAll(() if self.error else tuple(self.quotas), self.error, message)
                return described_answer(DESCRIBE_V0, correlation_id, answer)
        results = self.altering(read_altering(ALTER_V0, pack(">i", len(payload)) + payload))
        return None if results is None else altered_answer(ALTER_V0, correlation_id, results)


def quota_broker() -> AbstractAsyncContextManager[QuotaBroker]:
    return serving(QuotaBroker())
