"""The precedence of limits: which one applies to a client, and which counter it shares.

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

Sluice adds two levels between an exact name and the default: a user's group, and the prefixes of a client-id, the
longest first. With a group and a prefix there are fifteen levels (``levels``): all of the user, then all of the group,
all of the default user, those of client-ids alone; and in each the client-id, its prefixes, the default client-id, and
last none. A group has one counter, and so has a shared prefix. Without quotas for groups or prefixes, Kafka's eight
levels are used unchanged.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from quotas.counted import CAP, GROUP, PREFIX
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Book, Key, Policy, Terms

DEFAULT: Final = Default.DEFAULT

# The bits of "levels in use" (QuotaTypes in ClientQuotaManager): once set, set until restart.
CLIENT_ID_LEVEL: Final = 1
USER_LEVEL: Final = 2
USER_CLIENT_ID_LEVEL: Final = 4
_ONE_LEVEL: Final = (CLIENT_ID_LEVEL, USER_LEVEL, USER_CLIENT_ID_LEVEL)


def level_of(key: Key) -> int:
    """Return the bit of the level that ``key`` is configured on."""
    user, client_id = key
    if user is None:
        return CLIENT_ID_LEVEL
    return USER_LEVEL if client_id is None else USER_CLIENT_ID_LEVEL


def levels(book: Book, user: str, client_id: str) -> Iterator[Key]:
    """Yield the keys to look a client up by, in order.

    An empty client-id has only the levels of users alone (see ``tags_without_limit``), and an empty user none of them.
    """
    prefixes: list[Name] = [Prefix(client_id[:length]) for length in book.lengths if length <= len(client_id)]
    client_ids: list[Name] = [client_id, *prefixes, DEFAULT] if client_id else []
    group = book.group_of.get(user)
    users: list[Name] = [user, DEFAULT] if group is None else [user, Group(group), DEFAULT]
    if not user:
        users = []
    for name in users:
        for each in client_ids:
            yield name, each
        yield name, None
    for each in client_ids:
        yield None, each


def level_name(key: Key) -> str:
    """Return the name of a level, the same for all prefixes: ``user, default client-id``."""
    user, client_id = key
    of_user = "user-group" if isinstance(user, Group) else "default user" if user is DEFAULT else "user"
    of_client_id = "client-id prefix" if isinstance(client_id, Prefix) else "client-id"
    of_client_id = "default client-id" if client_id is DEFAULT else of_client_id
    return ", ".join([of_user] * (user is not None) + [of_client_id] * (client_id is not None))


class Counter(NamedTuple):
    """The identity of a client's counter: its tags, and which of them cover several names (bits of ``counted``)."""

    user: str
    client_id: str
    several: int


def counter_under(key: Key, user: str, client_id: str, terms: Terms) -> Counter:
    """Return the counter of a client under the limit that is configured as ``key``."""
    of_user, of_client_id = key
    user_tag, client_tag, several = "" if of_user is None else user, "" if of_client_id is None else client_id, 0
    if isinstance(of_user, Group):
        user_tag, several = f"group:{of_user.name}", GROUP
    if isinstance(of_client_id, Prefix) and terms.shared:
        client_tag, several = f"{of_client_id.text}*", several | PREFIX
    return Counter(user_tag, client_tag, several)


def tags_without_limit(book: Book, in_use: int, user: str, client_id: str) -> tuple[str, str]:
    """Return the (user, client-id) tags of a client that no quota is for; "" where a part plays no role.

    With one level in use (``in_use``: their bits) Kafka takes that level's tags for every client. An empty client-id
    that is found at level 2 or 5 gets the tags (user, "") and thereby escapes that limit, as in Kafka.
    """
    if in_use == USER_CLIENT_ID_LEVEL:
        return user, client_id
    by_user = in_use == USER_LEVEL or (
        not client_id
        and in_use != CLIENT_ID_LEVEL
        and ((user, DEFAULT) in book.limits or (DEFAULT, DEFAULT) in book.limits)
    )
    return (user, "") if by_user else ("", client_id)


def winner_of(book: Book, user: str, client_id: str) -> Key | None:
    """Return the quota that wins for a client: the first that its levels have; None: unlimited."""
    return next((key for key in levels(book, user, client_id) if key in book.limits), None)


def counter_of(book: Book, in_use: int, user: str, client_id: str) -> Counter:
    """Return the counter of a client under the quota that wins, or would; ``in_use``: the bits of levels.

    The tags of the one level in use are looked up nowhere: they do not depend on whether there is a limit (Kafka does
    the same for each request).
    """
    is_one = in_use in _ONE_LEVEL and not book.lengths and not book.group_of
    key = None if is_one else winner_of(book, user, client_id)
    if key is None:
        return Counter(*tags_without_limit(book, in_use, user, client_id), 0)
    return counter_under(key, user, client_id, book.terms_of(key))


def caps_of(book: Book, user: str, client_id: str) -> list[tuple[Key, Counter]]:
    """Return the caps that apply to a client, with the counter of each.

    Caps that share a counter, such as a name and the default, are reduced to the first.
    """
    found: dict[Counter, Key] = {}
    for key in levels(book, user, client_id):
        if key in book.limits:
            tags = counter_under(key, user, client_id, book.terms_of(key))
            found.setdefault(tags._replace(several=tags.several | CAP), key)
    return [(key, counter) for counter, key in found.items()]


def caps_at_once(keys: Iterable[Key]) -> int:
    """Return the largest number of caps that may apply to one client, by the forms of their entities."""
    forms: dict[object, set[object]] = {}
    for user, client_id in keys:
        form = Group if isinstance(user, Group) else None if user is None else str
        forms.setdefault(form, set()).add(client_id if isinstance(client_id, Prefix) else client_id is None)
    most = 0
    for of_form in forms.values():
        deepest, around = 0, list[str]()
        for text in sorted(each.text for each in of_form if isinstance(each, Prefix)):
            while around and not text.startswith(around[-1]):
                around.pop()
            around.append(text)
            deepest = max(deepest, len(around))
        most += sum(1 for each in of_form if isinstance(each, bool)) + deepest
    return most


def key_of(book: Book, counter: Counter) -> Key | None:
    """Return the configured key whose limit applies to a counter; None: unlimited."""
    user_tag, client_tag, several = counter
    users: list[Name] = [user_tag, DEFAULT] if user_tag else [None]
    client_ids: list[Name] = [None]
    if several & GROUP:
        users = [Group(user_tag.removeprefix("group:"))]
    if several & PREFIX:
        client_ids = [Prefix(client_tag[:-1])]
    elif client_tag:
        client_ids = [client_tag, *(Prefix(client_tag[:length]) for length in book.lengths), DEFAULT]
    for user in users:
        for client_id in client_ids:
            key = (user, client_id)
            shared = isinstance(client_id, Prefix) and book.terms_of(key).shared
            if key in book.limits and shared is bool(several & PREFIX):
                return key
    return None


class AppliedRule(NamedTuple):
    """A quota or a cap that applies to a client, and the client's counter under it."""

    kind: QuotaKind
    key: Key
    entity: Entity
    limit: float
    terms: Terms
    counter: Counter

    @property
    def enforced(self) -> float | None:
        """The limit in force; None if the rule is in shadow."""
        return None if self.terms.shadow else self.limit

    @property
    def shadow(self) -> float | None:
        """The limit that is measured but not enforced; None if there is none."""
        return self.limit if self.terms.shadow else self.terms.proposed.get(self.kind)


def rules_of(
    policy: Policy, user: str, client_id: str, kind: QuotaKind
) -> tuple[AppliedRule | None, list[AppliedRule]]:
    """Return the quota that wins for a client (None: unlimited), and the caps that apply in addition."""
    book, caps = policy.book(kind), policy.book(kind, cap=True)
    key = winner_of(book, user, client_id)
    quota = None if key is None else _applied(kind, book, key, counter_under(key, user, client_id, book.terms_of(key)))
    others = caps_of(caps, user, client_id) if caps.limits else []
    return quota, [_applied(kind, caps, key, counter) for key, counter in others]


def _applied(kind: QuotaKind, book: Book, key: Key, counter: Counter) -> AppliedRule:
    return AppliedRule(kind, key, book.entities[key], book.limits[key], book.terms_of(key), counter)


def reason(winner: Key | None, client_id: str) -> str:
    """Return why the quota configured as ``winner`` wins, or why none does."""
    if winner is None:
        return "no level has a limit" + ("" if client_id else ": an empty client-id has those of users alone")
    return f"{level_name(winner)} is the first level with a limit"
