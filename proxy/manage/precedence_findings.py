"""Findings about precedence: rules that apply to fewer, or to more, clients than a reader may expect."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from proxy.checks.explain import Where, written
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import CLIENT_KINDS, QuotaKind
from quotas.policy import Key, Policy
from quotas.precedence import AppliedRule, levels, rules_of, winner_of

Said = tuple[str, Entity | None, QuotaKind | None, str, str]
"""Name of the finding, entity, kind, message and fix."""

DEFAULT: Final = Default.DEFAULT
_MOST_USERS: Final = 100
"""Users checked for one rule: the first is named, the others are counted."""


class Rule(NamedTuple):
    """A quota to judge."""

    kind: QuotaKind
    key: Key
    entity: Entity
    limit: float

    @property
    def user(self) -> Name:
        return self.key[0]

    @property
    def client_id(self) -> Name:
        return self.key[1]


class Witnesses:
    """Sample clients for the engine, which show to whom a rule applies."""

    def __init__(self, policy: Policy, where: Where) -> None:
        self.policy = policy
        self._where = where
        users = {each.user for each in policy.limits} | set(policy.group_of)
        texts = [each.client_id for each in policy.limits]
        used = {letter for each in texts for letter in (each.text if isinstance(each, Prefix) else str(each))}
        self.user = next(name for name in map("somebody-else-{}".format, range(len(users) + 1)) if name not in users)
        """A user that nothing is configured for."""
        self.client_id = next(
            letter for letter in map(chr, range(0xE000, 0xE000 + len(used) + 1)) if letter not in used
        )
        """A client-id that nothing is configured for, and that no prefix contains."""
        self.rules = [
            Rule(kind, key, book.entities[key], limit)
            for kind, book in ((kind, policy.book(kind)) for kind in CLIENT_KINDS)
            for key, limit in book.limits.items()
        ]
        own = [each for each in self.rules if isinstance(each.user, str | Group) and each.client_id is None]
        self.of_users = {
            kind: sorted((each for each in own if each.kind is kind), key=lambda each: -each.limit)
            for kind in CLIENT_KINDS
        }
        """The rules of users and groups, whatever the client-id, the largest first."""

    def users(self, name: Name) -> list[str]:
        """Return users to whom a rule for ``name`` may apply: all of a group, or the most probable one of many."""
        if isinstance(name, Group):
            return [*self.policy.groups[name.name]]
        return [name] if isinstance(name, str) else [self.user]

    def client_ids(self, name: Name) -> list[str]:
        """Return client-ids to which a rule for ``name`` may apply."""
        if isinstance(name, Prefix):
            return [name.text + self.client_id]
        if name is None:
            return [self.client_id, ""]
        return [name] if isinstance(name, str) else [self.client_id]

    def winner(self, user: str, client_id: str, kind: QuotaKind) -> Key | None:
        """Return which rule wins for a client."""
        return winner_of(self.policy.book(kind), user, client_id)

    def applied(self, user: str, client_id: str, kind: QuotaKind) -> tuple[AppliedRule | None, list[AppliedRule]]:
        """Return the rule that wins for a client, and its caps in force."""
        quota, caps = rules_of(self.policy, user, client_id, kind)
        return quota, [cap for cap in caps if cap.enforced is not None]

    def is_shadow(self, kind: QuotaKind, key: Key) -> bool:
        return self.policy.book(kind).terms_of(key).shadow

    def said(self, kind: QuotaKind, key: Key) -> str:
        """Return a rule, and where it is defined."""
        entity = self.policy.book(kind).entities[key]
        return f"{entity.describe()} ({self._where(entity, kind)})"


def look(policy: Policy, where: Where) -> Iterator[Said]:
    """Yield all findings about precedence."""
    of = Witnesses(policy, where)
    for find in _FINDERS:
        for rule in of.rules:
            for name, message, fix in find(of, rule):
                yield name, rule.entity, rule.kind, message, fix
    yield from _idle_caps(of)


_Found = Iterator[tuple[str, str, str]]


def _never_matching(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule that wins for no client."""
    first: Key | None = None
    for witness in ((name, each) for name in of.users(rule.user) for each in of.client_ids(rule.client_id)):
        winner = of.winner(*witness, rule.kind)
        if winner == rule.key:
            return
        first = first or winner
    by = "the group has no users"
    if first is not None:
        by = f"{of.said(rule.kind, first)} takes precedence for all of its clients"
    yield "never-matches", by, "remove it, or the rule that takes precedence; a cap applies in addition"


def _before_client_ids(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule for a client-id (levels 4, 7) over which larger quotas of users (level 3) take precedence."""
    if rule.user not in {None, DEFAULT} or rule.client_id in {None, DEFAULT}:
        return
    kind, (witness,) = rule.kind, of.client_ids(rule.client_id)
    if of.winner(of.user, witness, kind) != rule.key:
        return  # reported by ``_never_matching``
    larger = [each for each in of.of_users[kind][:_MOST_USERS] if each.limit > rule.limit]
    found = [each for each in larger if of.winner(of.users(each.user)[0], witness, kind) == each.key]
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        at_least = " at least" if len(larger) == _MOST_USERS else ""
        who = f"{of.said(kind, found[0].key)} with {written(found[0].limit)}{more}{at_least}"
        message = f"a larger quota of a user takes precedence over this one: {who}"
        fix = "write a cap for the client-id, or a quota for each such user and the client-id"
        yield "precedence-surprise", message, fix


def _empty_client_ids(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule for the default client-id that a client evades by having no client-id."""
    if rule.client_id is not DEFAULT:
        return
    quota, caps = of.applied(of.users(rule.user)[0], "", rule.kind)
    if any(each.limit <= rule.limit for each in caps):
        return
    gets = "no limit"
    if quota is not None:
        if quota.limit <= rule.limit:
            return
        gets = f"{written(quota.limit)} of {of.said(rule.kind, quota.key)}"
    who = Entity(DEFAULT if rule.user is None else rule.user).describe()
    what = "cap" if rule.user is None else "quota"
    message = f"it does not apply to a client without a client-id, which has {gets}"
    yield "empty-client-id-escapes", message, f"write a {what} for {who}, no larger than this one"


def _multiplied(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule that a client multiplies by making up client-ids, with no cap over all of them."""
    if rule.client_id is not DEFAULT and not isinstance(rule.client_id, Prefix):
        return
    kind, (name, *_), (one,) = rule.kind, of.users(rule.user), of.client_ids(rule.client_id)
    counters, capped = set(), []
    for client_id in (one, one + of.client_id):
        quota, caps = of.applied(name, client_id, kind)
        if quota is not None and quota.key == rule.key:
            counters.add(quota.counter)
        capped.append({cap.counter for cap in caps})
    if len(counters) > 1 and not set.intersection(*capped):
        who = Entity(DEFAULT if rule.user is None else rule.user).describe()
        message = "a client that makes up client-ids gets the full limit for each"
        yield "client-id-multiplies", message, f"write a cap for {who} beside it"


def _members(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule of a group some of whose members have a quota of their own instead."""
    if not isinstance(rule.user, Group) or rule.client_id is not None:
        return
    winners = ((name, of.winner(name, of.client_id, rule.kind)) for name in of.users(rule.user))
    own = [winner for name, winner in winners if winner is not None and winner[0] == name]
    if own:
        more = f", and {len(own) - 1} more" if len(own) > 1 else ""
        member = of.said(rule.kind, own[0])
        message = f"a member has a quota of its own instead, which does not count towards this: {member}{more}"
        fix = "write the group's as a cap if it is for all of them, or take the user out of the group"
        yield "group-member-has-own", message, fix


def _shadows(of: Witnesses, rule: Rule) -> _Found:
    """Yield a rule in shadow that takes precedence over an enforced limit."""
    kind = rule.kind
    if not of.is_shadow(kind, rule.key):
        return
    user, client_id = of.users(rule.user)[0], of.client_ids(rule.client_id)[0]
    if of.winner(user, client_id, kind) != rule.key:
        return
    book = of.policy.book(kind)
    keys = [key for key in levels(book, user, client_id) if key in book.limits]
    enforced = [key for key in keys[keys.index(rule.key) + 1 :] if not of.is_shadow(kind, key)]
    if enforced:
        at = of.said(kind, enforced[0])
        message = f"while it is in shadow its clients are unlimited; without it, {at} would limit them"
        fix = "if that is not intended, use `proposed` beside an enforced limit"
        yield "shadow-hides-limit", message, fix


_FINDERS: Final[tuple[Callable[[Witnesses, Rule], _Found], ...]] = (
    _never_matching,
    _before_client_ids,
    _empty_client_ids,
    _multiplied,
    _members,
    _shadows,
)


def _idle_caps(of: Witnesses) -> Iterator[Said]:
    """Yield caps of a user or a group that are not below the sum of its quotas.

    Only where that is certain: each user has one counter for all client-ids, in force, and with the burst of the cap.
    """
    for kind in CLIENT_KINDS:
        book, caps = of.policy.book(kind), of.policy.book(kind, cap=True)
        pairs = {user for user, client_id in book.limits if user is not None and client_id is not None}
        for (user, client_id), limit in caps.limits.items():
            if client_id is not None or not isinstance(user, str | Group):
                continue
            terms = caps.terms_of((user, None))
            together: dict[object, float] = {}
            for name in of.users(user):
                quota, _ = of.applied(name, of.client_id, kind)
                group = of.policy.group_of.get(name, "")
                if quota is None or quota.key[0] is None or pairs & {name, Group(group), DEFAULT}:
                    break
                of_quota = quota.terms
                is_like = (of_quota.burst_ms, of_quota.of_cluster) == (terms.burst_ms, terms.of_cluster)
                if of_quota.shadow or not is_like:
                    break
                together[quota.counter] = quota.limit
            else:
                total = sum(together.values())
                if together and total <= limit:
                    entity = of.policy.book(kind, cap=True).entities[user, client_id]
                    message = f"it has no effect: quotas allow {written(total)} all together"
                    yield "cap-never-holds", entity, kind, message, "lower it, or remove it"
