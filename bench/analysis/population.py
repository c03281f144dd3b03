"""The client population of a large cluster: a few busy clients, most of them nearly idle.

A *meter* is one client at one broker through one proxy instance: it has a row of its own in an interval. A *unit* is
one counter of a quota: the meters of one instance, broker, direction and rule (and user, if the rule has one).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Objects = NDArray[np.object_]

INSTANCES: Final = 3
BROKERS: Final = 6
CLIENTS_PER_USER: Final = 25
SKEW: Final = 1.05
"""The exponent of Zipf's law for requests by client and clients by user."""
REQUEST_BYTES: Final = 6000.0
"""The median over all clients."""
PRODUCERS: Final = 0.6
"""The share of clients that write; the others read."""
NAMED_USERS: Final = 0.10
"""The share of users with a quota of their own."""
NAMED_PAIRS: Final = 0.05
"""The share of users with a quota for each of their clients."""
TIGHT: Final = 0.15
"""The share of these quotas that is about as large as the demand, or smaller."""
GRAIN_BYTES: Final = 64 * 1024
"""The unit that quotas are multiples of."""
UNLIMITED: Final = 1e300
"""Stands in for infinity."""
SERVICES: Final = ("orders", "billing", "search", "audit", "metrics", "mailer", "import", "export", "stock", "fraud")


@dataclass(frozen=True, slots=True)
class RuleQuotas:
    """Quotas by rule: bytes per second on one broker, NaN for none; the last rule is the default user's."""

    entities: tuple[str, ...]
    """In the syntax of a quota file."""
    rules: tuple[str, ...]
    """In the syntax of usage records."""
    produce_limit: Floats
    fetch_limit: Floats

    def scaled(self, factor: float) -> str:
        """Return the quota file with limits multiplied by ``factor``."""
        lines = ["quotas:"]
        for entity, produce, fetch in zip(self.entities, self.produce_limit, self.fetch_limit, strict=True):
            rates = [
                f"{kind}: {max(round(limit * factor), 1)}"
                for kind, limit in (("producer_byte_rate", produce), ("consumer_byte_rate", fetch))
                if np.isfinite(limit)
            ]
            lines.append(f"  - {{entity: {entity}, {', '.join(rates)}}}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Population:
    """Arrays with an element per meter; and the policy in force."""

    policy: RuleQuotas
    instance: Ints
    broker: Ints
    listener: Objects
    user: Objects
    client_id: Objects
    produces: Bools
    requests_per_s: Floats
    """The rate outside bursts."""
    request_bytes: Floats
    connections: Ints
    rule: Ints
    unit: Ints
    unit_limit: Floats
    """The limit of each unit, by its number."""

    @classmethod
    def generate(cls, clients: int, rows_per_s: float, random: np.random.Generator) -> "Population":
        """Return ``clients`` clients that together make about ``rows_per_s`` rows per second."""
        users = max(clients // CLIENTS_PER_USER, 4)
        user_of = random.choice(users, clients, p=_zipf(users, random))
        rule_of_user, named = _rules(users, random)
        brokers_of = 1 + random.binomial(2, 0.3, clients)
        client = np.repeat(np.arange(clients), brokers_of)
        turn = np.arange(len(client)) - np.repeat(np.cumsum(brokers_of) - brokers_of, brokers_of)
        broker = (random.integers(0, BROKERS, clients)[client] + 2 * turn) % BROKERS
        instance = random.integers(0, INSTANCES, clients)[client]

        share = (_zipf(clients, random) / brokers_of)[client]
        requests_per_s = share * _total_rate(share, rows_per_s)
        request_bytes = np.clip(random.lognormal(np.log(REQUEST_BYTES), 1.0, clients), 200, 1e6)[client]
        produces = (random.random(clients) < PRODUCERS)[client]

        user = user_of[client]
        rule = rule_of_user[user]
        sharer = np.where(
            rule < named, client + users, user
        )  # under <default> client-id rules each client counts alone
        _, unit = np.unique(
            np.stack((instance, broker, produces, rule, sharer)).astype(np.int64), axis=1, return_inverse=True
        )
        unit = unit.reshape(-1)
        policy = _policy(rule_of_user, named, rule, unit, produces, requests_per_s * request_bytes, random)
        limit = np.where(produces, policy.produce_limit[rule], policy.fetch_limit[rule])
        unit_limit = np.full(unit.max() + 1, UNLIMITED)
        unit_limit[unit] = np.where(np.isnan(limit), UNLIMITED, limit)
        return cls(
            policy=policy,
            instance=instance,
            broker=broker,
            listener=np.where(user % 3 == 0, "TLS", "PLAIN").astype(object),
            user=_named([_user(number) for number in range(users)], user),
            client_id=_named([f"{SERVICES[n % len(SERVICES)]}-{n:06}" for n in range(clients)], client),
            produces=produces,
            requests_per_s=requests_per_s,
            request_bytes=request_bytes,
            connections=1 + random.geometric(0.5, len(client)).clip(max=12) // 2,
            rule=rule,
            unit=unit,
            unit_limit=unit_limit,
        )


def _zipf(count: int, random: np.random.Generator) -> Floats:
    """Return Zipf-distributed shares in random order."""
    shares = (np.arange(count) + 1.0) ** -SKEW
    return np.asarray(random.permutation(shares / shares.sum()))


def _total_rate(share: Floats, rows_per_s: float) -> float:
    """Return the total request rate at which ``rows_per_s`` meters have a request in a second."""
    least, most = 1e-3, 1e12
    if rows_per_s >= 0.95 * len(share):
        raise ValueError(f"{len(share)} meters cannot make {rows_per_s:g} rows a second")
    while most / least > 1.001:
        middle = np.sqrt(least * most)
        if -np.expm1(-share * middle).sum() < rows_per_s:
            least = middle
        else:
            most = middle
    return float(least)


def _rules(users: int, random: np.random.Generator) -> tuple[Ints, int]:
    """Return the rule of each user, and the number of leading rules that are (user, <default> client-id)."""
    pairs, own = max(round(users * NAMED_PAIRS), 1), max(round(users * NAMED_USERS), 1)
    rule = np.full(users, pairs + own)
    rule[random.permutation(users)[: pairs + own]] = np.arange(pairs + own)
    return rule, pairs


def _policy(
    rule_of_user: Ints,
    named: int,
    rule: Ints,
    unit: Ints,
    produces: Bools,
    bytes_per_s: Floats,
    random: np.random.Generator,
) -> RuleQuotas:
    """Return quotas that are a factor above the demand of a rule's busiest unit, with a few exceptions."""
    default = int(rule_of_user.max())
    factor = random.lognormal(np.log(5.0), 0.6, default + 1)
    tight = random.random(default + 1) < TIGHT
    factor[tight] = random.uniform(0.7, 1.3, int(tight.sum()))
    factor[default] = 0.8  # the busiest default user exceeds its limit
    limits = []
    for direction, with_quota in ((produces, 1.0), (~produces, 0.5)):
        wanted = np.bincount(unit, bytes_per_s * direction)
        of_rule = np.zeros(default + 1)
        np.maximum.at(of_rule, rule, np.where(direction, wanted[unit], 0))
        limit = np.ceil(of_rule * factor / GRAIN_BYTES) * GRAIN_BYTES
        limits.append(np.where((limit > 0) & (random.random(default + 1) < with_quota), limit, np.nan))
    produce, fetch = limits
    produce[np.isnan(produce)] = GRAIN_BYTES  # rules without producers
    fetch[default] = np.nan

    users = np.argsort(rule_of_user, kind="stable")[:default]
    names = [_user(int(number)) for number in users]
    pairs = [f"{{user: {name}, client-id: {{default: true}}}}" for name in names[:named]]
    own = [f"{{user: {name}}}" for name in names[named:]]
    return RuleQuotas(
        entities=(*pairs, *own, "{user: {default: true}}"),
        rules=(
            *(f"user={name}, client-id=<default>" for name in names[:named]),
            *(f"user={name}" for name in names[named:]),
            "user=<default>",
        ),
        produce_limit=produce,
        fetch_limit=fetch,
    )


def _user(number: int) -> str:
    return f"team-{number:04}"


def _named(names: list[str], number: Ints) -> Objects:
    return np.array(names, dtype=object)[number]
