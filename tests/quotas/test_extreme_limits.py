"""Limits that no quota file takes and that ZooKeeper may hold: nothing in the way of data stumbles over them."""

import math

import pytest

from quotas.connections import ConnectionRates
from quotas.engine import CLIENT_KINDS, Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.mutations import Ruling, TokenBound
from quotas.policy import Policy

LIMITS = (0.0, 5e-324, 1e-300, 1e-9, 1.7e308, math.inf)
FAR = 10**9


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", CLIENT_KINDS)
def test_counter_with_extreme_limit_throttles_only_below_one(kind: QuotaKind, limit: float) -> None:
    engine = Engine(Policy({Entity(user="a"): {kind: limit}}))
    bound = engine.resolve("a", "app", kind, 1)
    assert (bound.charge(1e9, 1000) > 0) is (limit < 1)
    bound.bring_forward(1e9, 1500)
    bound.may_go(1501)  # where throttles are capped, one goes in each window
    assert (bound.may_go(1502) > 1502) is (limit < 1)
    if isinstance(bound, TokenBound):
        assert Ruling([bound], strict=True).accepts(1, 1502) is (limit > 1)
    for look in (bound.owed_ms, bound.left, bound.busy_ms, bound.usage):
        look(1500)
    bound.fits(1.0, 1500)
    bound.fetches.join("a")
    assert bound.may_go(FAR - 1) >= FAR - 1
    assert bound.fetches.grant("a", 1 << 30, FAR - 1) >= 1
    bound.fetches.leave("a")
    bound.rejudge(1600)
    bound.forgive(1700)
    engine.expire(FAR)
    for other in (1000.0, limit):
        engine.apply(Policy({Entity(user="a"): {kind: other}}), FAR)
        engine.resolve("a", "app", kind, 1).charge(1.0, FAR)
    list(engine.usage(FAR))


@pytest.mark.parametrize("limit", LIMITS)
def test_connection_rate_with_extreme_limit_refuses_only_below_one(limit: float) -> None:
    rates = ConnectionRates(Window(), None, {"P": None})
    rates.apply(Policy({Entity(ip=Default.DEFAULT): {QuotaKind.CONNECTION_CREATION_RATE: limit}}))
    refused = [rates.admit("P", "10.0.0.1", 1, 1000 + number) > 0 for number in range(100)]
    assert any(refused) is (limit < 1)
    rates.expire(FAR)
    list(rates.usage_of_addresses(FAR))
