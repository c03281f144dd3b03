"""A stand-in for a broker that describes and alters quotas, and does what a real one does only now and then."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from struct import pack

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
from tests.harness.fake_broker import API_VERSIONS, METADATA, FakeBroker, correlation_id, frame, reply, serving

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
        self.answers |= {API_VERSIONS: self._versions, DESCRIBE: self._describe, ALTER: self._alter}

    @property
    def described(self) -> int:
        """How often."""
        return self.asked.count(DESCRIBE)

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

    def _versions(self, request: bytes) -> bytes:
        ranges = b"".join(pack(">hhh", key, 0, 2 if key == METADATA else 1) for key in self.apis)
        return reply(request, pack(">hi", 0, len(self.apis)) + ranges)

    def _describe(self, request: bytes) -> bytes:
        message = "as asked for" if self.error else None
        answer = DescribedAll(() if self.error else tuple(self.quotas), self.error, message)
        return described_answer(DESCRIBE_V0, correlation_id(request), answer)

    def _alter(self, request: bytes) -> bytes | None:
        results = self.altering(read_altering(ALTER_V0, frame(request)))
        return None if results is None else altered_answer(ALTER_V0, correlation_id(request), results)


def quota_broker() -> AbstractAsyncContextManager[QuotaBroker]:
    return serving(QuotaBroker())
