"""Which of the configured limits holds for a client, and with whom it shares a counter.

The eight levels, first present wins (KIP-55 and ClientQuotaManager.DefaultQuotaCallback, which has one more):

====  ==========================  =======================  ================================
      configured for              tags of the counter      that is, one counter for each
====  ==========================  =======================  ================================
1     user, client-id             user, client-id          pair
2     user, default client-id     user, client-id          pair
3     user                        user, ""               user
4     default user, client-id     user, client-id          pair
5     both default                user, client-id          pair
6     default user                user, ""               user
7     client-id                   "", client-id          client-id, whoever the user is
8     default client-id           "", client-id          client-id, whoever the user is
====  ==========================  =======================  ================================
"""

from collections.abc import Mapping
from typing import Final

from quotas.entities import Default
from quotas.policy import Key

DEFAULT: Final = Default.DEFAULT

# The bits of "levels in use" (QuotaTypes in ClientQuotaManager): once set, set until restart.
CLIENT_ID_LEVEL: Final = 1
USER_LEVEL: Final = 2
USER_CLIENT_ID_LEVEL: Final = 4


def level_of(key: Key) -> int:
    """Return the bit of the level on which ``key`` is configured."""
    user, client_id = key
    if user is None:
        return CLIENT_ID_LEVEL
    return USER_LEVEL if client_id is None else USER_CLIENT_ID_LEVEL


def tags_of(limits: Mapping[Key, float], levels: int, user: str, client_id: str) -> tuple[str, str]:
    """Return the (user, client-id) tags of the counter that a client is measured by; "" where a part plays no role.

    With one level in use Kafka takes that level's tags for everybody, also for those without a quota. With several,
    the levels are walked. An empty client-id found at level 2 or 5 gets the tags (user, "") and thereby escapes
    that limit (``limiting_key`` asks levels 3 and 6 only): so does Kafka.
    """
    if levels == USER_CLIENT_ID_LEVEL:
        return user, client_id
    if levels == USER_LEVEL:
        return user, ""
    if levels in {0, CLIENT_ID_LEVEL}:
        return "", client_id
    if (user, client_id) in limits or (user, DEFAULT) in limits:
        return user, client_id
    if (user, None) in limits:
        return user, ""
    if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
        return user, client_id
    if (DEFAULT, None) in limits:
        return user, ""
    return "", client_id


def limiting_key(limits: Mapping[Key, float], user_tag: str, client_tag: str) -> Key | None:
    """Return the configured key whose limit holds for a counter with these tags; None: unlimited."""
    candidates: tuple[Key, ...] = ()
    if user_tag and client_tag:
        candidates = (
            (user_tag, client_tag),
            (user_tag, DEFAULT),
            (DEFAULT, client_tag),
            (DEFAULT, DEFAULT),
        )
    elif user_tag:
        candidates = ((user_tag, None), (DEFAULT, None))
    elif client_tag:
        candidates = ((None, client_tag), (None, DEFAULT))
    for key in candidates:
        if key in limits:
            return key
    return None
