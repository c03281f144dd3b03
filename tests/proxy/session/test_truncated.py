"""Requests that end too early while their counters are in debt: each ends its session, and none is a fault of ours."""

from contextlib import suppress
from struct import pack

import pytest

from protocol.errors import ProtocolError
from protocol.table import SPECS, ApiSpec
from proxy.runtime import faults
from quotas.kinds import QuotaKind
from tests.proxy.playbook import Play, frame
from tests.proxy.session.another import Another

KINDS = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE, QuotaKind.CONTROLLER_MUTATION_RATE)
PERCENTAGE = QuotaKind.REQUEST_PERCENTAGE
LONGEST = 24
"""Bytes of a request behind its size: its header has some fifteen."""


def requests_of(spec: ApiSpec) -> list[bytes]:
    """Beginnings of a request, each announced as if it were all: with bytes of 0, and such as claim the most."""
    head = pack(">hhih", spec.api_key, spec.api_version, 7, 3) + b"app" + b"\0" * (spec.request_header_version == 2)
    found = []
    for filling in (b"\0", b"\x7f"):
        whole = head + filling * LONGEST
        found += [frame(whole[:size]) for size in range(len(whole) + 1)]
    return found


@pytest.mark.long
@pytest.mark.parametrize("with_percentage", [False, True])
@pytest.mark.parametrize("key", sorted({spec.api_key for spec in SPECS.values()}))
def test_truncated_request_in_queue_closes_without_a_fault(key: int, *, with_percentage: bool) -> None:
    versions = [spec for spec in SPECS.values() if spec.api_key == key]
    chosen = versions if key in (0, 1) else {versions[0], versions[len(versions) // 2], versions[-1]}
    before = dict(faults.counts)
    limits = dict.fromkeys((*KINDS, PERCENTAGE) if with_percentage else KINDS, 1.0)
    play = Play(limits, max_hold_ms=100, authenticated=True)
    bounds = [play.engine.resolve("ANONYMOUS", "app", kind, 1) for kind in limits]
    for bound in bounds:
        bound.hold()
    for spec in chosen:
        for sent in requests_of(spec):
            for bound in bounds:
                bound.charge(1000, play.loop.now_ms)
            other = Another(play)
            with suppress(ProtocolError):  # the end of the session
                other.send(sent)
            play.loop.advance(1500)
            if not other.session.closed:
                other.session.close()
    play.loop.advance(10_000)
    assert dict(faults.counts) == before
