"""Findings made by hand: a busy day with every section filled, and names that want to be something else."""

import math
from datetime import UTC, datetime, timedelta
from typing import Final

from analysis.report.findings import (
    AroundBurst,
    ChangedClient,
    ChangedLimit,
    ChangedQuota,
    Charge,
    Comparison,
    Connected,
    Episode,
    Headroom,
    Loss,
    Missing,
    Neighbour,
    OfRule,
    PeriodTotals,
    RateSeries,
    ReportFindings,
    Sums,
    Talker,
    Throttled,
    Trend,
    Victim,
)

BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)
STEP_S: Final = 600
STEPS: Final = tuple(BEGIN + timedelta(seconds=STEP_S * number) for number in range(144))
SCRIPT: Final = "<script>alert(1)</script>"
NAMES: Final = (
    ("alice", "orders-service"),
    ("analytics", "spark-nightly"),
    ("bob", SCRIPT),
    ("CN=payments.internal.example.com,OU=Platform Engineering,O=Example,C=DE", "payments-reconciliation-worker-7f9c"),
    ("carol", ""),
    ("\u202eevil\"'&amp;", "a\nb"),
    ("etl", "mirror-maker"),
    ("clickstream", "web-frontend"),
    ("iot", "gateway-eu-1"),
    ("batch", "warehouse-export"),
)


def busy() -> ReportFindings:
    return ReportFindings(
        clusters=["demo"],
        begin=BEGIN,
        end=BEGIN + timedelta(days=1),
        modes=["enforce"],
        step_s=STEP_S,
        steps=STEPS,
        gap_ms=11_000,
        instances=2,
        brokers=3,
        tables="/warehouse/report=20260301T000000Z",
        totals=PeriodTotals(
            rows=4_812_331,
            clients=214,
            throttled=6,
            episodes=412,
            muted_ms=31_840_000,
            bytes_in=7 * 2**40,
            bytes_out=11 * 2**40,
            requests=318_000_000,
            refused=17,
            counters=388,
            close=3,
        ),
        loss=lost(),
        throttled=[
            Throttled(
                user,
                client_id,
                number % 3,
                "produce" if number % 2 else "fetch",
                f"user={user[:9]}",
                18_000_000 // (number + 1) ** 2,
                _shares(number),
            )
            for number, (user, client_id) in enumerate(NAMES[:6])
        ],
        rules=[
            OfRule(kind, rule, False, False, "enforce", 10**12, 400, 31_840_000, 1e6, 2e6)
            for kind, rule in (("produce", "user=alice"), ("fetch", f"client-id={SCRIPT}"), ("mutation", "user=etl"))
        ],
        connected=[
            Connected("10.0.0.5", "PLAIN", False, "enforce", "ip=<default>", 5.0, 9000, 4000, 60_000, 0, 0),
            Connected(None, "PLAIN", False, "enforce", None, None, 0, 0, 0, 3, 900),
        ],
        episodes=[
            Episode(
                *NAMES[number % 6],
                number % 3,
                "produce",
                "user=<default>, client-id=<default>",
                "enforce",
                BEGIN + timedelta(seconds=1900 * number),
                BEGIN + timedelta(seconds=1900 * number + 2000 / (number + 1)),
                int(1_400_000 / (number + 1)),
                3120 // (number + 1),
                5.0 * 2**20,
            )
            for number in range(40)
        ],
        headroom=[
            Headroom(
                user,
                client_id if number % 2 else None,
                f"edge-{number % 2 + 1}",
                number % 3,
                "produce",
                f"user={user[:9]}",
                10.0 * 2**20,
                top * 0.55,
                top * 0.9,
                top,
                top * 1.25,
                0.031 if top > 0.95 else 0.0,
                *(
                    (1.0, top * 0.55, top)
                    if number < 3
                    else (0.25, top * 0.9, top * 1.2)
                    if number < 9
                    else (0, None, None)
                ),
            )
            for number, ((user, client_id), top) in enumerate(
                zip(NAMES, (1.31, 0.99, 0.92, 0.78, 0.55, 0.31, 0.2, 0.11, 0.05, 0.0004), strict=True)
            )
        ],
        talkers=[
            Talker(user, client_id, 2**41 // (number + 1), 2**42 // (number + 2), 90_000_000 // (number + 1))
            for number, (user, client_id) in enumerate(NAMES)
        ],
        series=[
            *(
                RateSeries(f"{user} / {client_id or '(no client-id)'}", _volume(number))
                for number, (user, client_id) in enumerate(NAMES[:8])
            ),
            RateSeries(None, _volume(5)),
        ],
        neighbours=[
            Neighbour(
                "analytics",
                "spark-nightly",
                1,
                "muted_ms",
                *(0.71, 0.62, 0.8, 0.0003, 0.79, 0.08),
                *(10, 23, 9_400_000, 950_000, 40_000, 0.34),
                victims=(
                    Victim("alice", "orders-service", 6_200_000, shared=True),
                    Victim("bob", SCRIPT, 2_100_000, shared=False),
                ),
                around=_around(4000),
                together=[("bob", SCRIPT), (None, None)],
            ),
            Neighbour(
                NAMES[3][0],
                NAMES[3][1],
                2,
                "request_time_ms",
                *(0.12, 0.02, 0.22, 0.031, 0.2, 0.08),
                *(0, 12, 1_400_000, 560_000, 34_000, 0.14),
                around=_around(900),
            ),
        ],
        compared=11,
        trends=[
            Trend(
                "alice",
                None,
                "edge-1",
                1,
                "produce",
                "user=alice",
                14,
                0.021,
                0.74,
                12.4,
                "rising",
                [(20_500 + day, 0.46 + 0.021 * day + 0.03 * math.sin(day * 7)) for day in range(14)],
            ),
            Trend(
                None,
                SCRIPT,
                "edge-1",
                2,
                "fetch",
                "client-id=<default>",
                14,
                -0.004,
                0.31,
                None,
                "falling",
                [(20_500 + day, 0.36 - 0.004 * day) for day in range(14)],
            ),
        ],
        days=14,
        charges=[
            Charge(user, 2**41 // (number + 1), 2**42 // (number + 1), 10**8 // (number + 1), 841.2 / (number + 1))
            for number, (user, _) in enumerate(NAMES)
        ],
        currency="EUR",
        comparison=Comparison(
            BEGIN - timedelta(days=2),
            BEGIN,
            scale=0.5,
            modes=["shadow"],
            unrecorded_s=0,
            unrecorded_before_s=12_000,
            now=Sums(214, 6, 31_840_000, 7 * 2**40, 11 * 2**40, 318_000_000, 17),
            before=Sums(209, 9, 12_000_000, 3 * 2**40, 22 * 2**40, 636_000_000, 0),
            new=7,
            new_clients=NAMES[:3],
            gone=2,
            gone_clients=NAMES[4:6],
            clients=[
                ChangedClient(user, client_id, seen, 2**40, 0 if seen == "new" else 2**39, 900_000, 1_800_000)
                for (user, client_id), seen in zip(NAMES[:4], ("new", "both", "both", "gone"), strict=True)
            ],
            limits=[
                ChangedLimit("alice", None, 1, "produce", "user=alice", 1e7, 2e7, 1.31, 0.44),
                ChangedLimit(None, SCRIPT, 2, "fetch", "client-id=<default>", 1e6, 1e6, 0.31, 0.9),
            ],
            quotas=[
                ChangedQuota("produce", "user=alice", 1e7, 1e7, 2e7, 2e7),
                ChangedQuota("fetch", f"client-id={SCRIPT}", 1e6, 2e6, None, None),
                ChangedQuota("mutation", "user=etl", None, None, 5.0, 5.0),
            ],
        ),
    )


def lost() -> Loss:
    """Of two proxies one could not ship for some hours; and somebody wrote nonsense to the topic."""
    hours = [BEGIN + timedelta(hours=number) for number in range(25)]
    missing = [900 * (13 <= number < 17) + 50 * (number == 13) for number in range(24)]
    steps = [Missing(hours[number], hours[number + 1], 7200, each) for number, each in enumerate(missing)]
    places = [
        Missing(each.begin, each.end, 3600, each.missing, 800, 3, 0, 0, "demo", "edge-1") for each in steps[13:17]
    ]
    return Loss(
        expected=24 * 7200,
        missing=sum(missing),
        dropped=3200,
        late=12,
        rejected=5,
        wrong_clock=2,
        rows_of_others=7,
        worst=steps[13],
        steps=steps,
        places=[*places, Missing(None, None, 0, 0, 0, 0, 5, 2, "demo", SCRIPT), Missing(None, None, 0, 0, 0, 0, 1)],
    )


def quiet() -> ReportFindings:
    """Traffic of a minute, and nothing to complain of."""
    step = timedelta(seconds=1)
    return ReportFindings(
        clusters=["demo"],
        begin=BEGIN,
        end=BEGIN + 60 * step,
        modes=["enforce"],
        step_s=1,
        steps=[BEGIN + number * step for number in range(60)],
        gap_ms=11_000,
        instances=1,
        brokers=1,
        tables="report=1",
        totals=PeriodTotals(rows=60, clients=1, bytes_in=6000, bytes_out=600, requests=120),
        talkers=[Talker("alice", "app", 6000, 600, 120)],
        series=[RateSeries("alice / app", [110.0] * 60)],
        charges=[Charge("alice", 6000, 600, 120, None)],
    )


def _around(most_ms: float) -> list[AroundBurst]:
    return [
        AroundBurst(
            10 * step, 2e6 if 0 <= step < 9 else 9e4, most_ms * (0.9 if 1 <= step < 10 else 0.15), most_ms * 0.2
        )
        for step in range(-30, 60)
    ]


def _shares(number: int) -> list[float]:
    return [max(0.0, min(1.0, math.sin(step / (9 + 4 * number) + number) * 1.4 - 0.25 * number)) for step in range(144)]


def _volume(number: int) -> list[float]:
    size = 2**36 / (number + 1)
    return [
        size * (1.2 + math.sin(step / 23 + number)) * (2 if number == 1 and 20 < step < 44 else 1)
        for step in range(144)
    ]
