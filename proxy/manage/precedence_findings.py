"""Findings about precedence: rules that apply to fewer, or to more, clients than a reader may expect."""

from collections.abc import Iterator
from typing import Final

from proxy.checks.explain import Explainer, Rule, written
from quotas.engine import CLIENT_KINDS
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import PLAIN, Key, Policy

Said = tuple[str, Entity | None, QuotaKind | None, str, str]
"""Name of the finding, entity, kind, message and fix."""

DEFAULT: Final = Default.DEFAULT
_MOST_USERS: Final = 100
"""Users checked for one rule: the first is named, the others are counted."""


class Witnesses:
    """Sample clients for the engine, which show to whom a rule applies."""

    def __init__(self, policy: Policy, explainer: Explainer) -> None:
        self.policy = policy
        self.explainer = explainer
        users = {each.user for each in policy.limits} | set(policy.group_of)
        texts = [each.client_id for each in policy.limits]
        used = {letter for each in texts for letter in (each.text if isinstance(each, Prefix) else str(each))}
        self.user = next(name for name in map("somebody-else-{}".format, range(len(users) + 1)) if name not in users)
        """A user that nothing is configured for."""
        self.client_id = next(
            letter for letter in map(chr, range(0xE000, 0xE000 + len(used) + 1)) if letter not in used
        )
        """A client-id that nothing is configured for, and that no prefix contains."""

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

    def winner(self, user: str, client_id: str, kind: QuotaKind) -> Rule | None:
        """Return the rule that wins for a client."""
        return self.explainer.winner(user, client_id, kind)

    def rules(self, kind: QuotaKind) -> Iterator[tuple[Key, Entity, float]]:
        """Yield the quotas of a kind."""
        book = self.policy.book(kind)
        for key, limit in book.limits.items():
            yield key, book.entities[key], limit


def never_matching(of: Witnesses) -> Iterator[Said]:
    """Yield rules that win for no client."""
    for kind in CLIENT_KINDS:
        for (user, client_id), entity, _ in of.rules(kind):
            first: Rule | None = None
            for witness in ((name, each) for name in of.users(user) for each in of.client_ids(client_id)):
                winner = of.winner(*witness, kind)
                if winner is not None and winner.entity == entity:
                    break
                first = first or winner
            else:
                by = (
                    "the group has no users"
                    if first is None
                    else f"{_said(first)} takes precedence for all of its clients"
                )
                yield (
                    "never-matches",
                    entity,
                    kind,
                    by,
                    "remove it, or the rule that takes precedence; a cap applies in addition",
                )


def before_client_ids(of: Witnesses) -> Iterator[Said]:
    """Yield rules for a client-id (levels 4, 7) over which larger quotas of users (level 3) take precedence."""
    for kind in CLIENT_KINDS:
        own = [(limit, key, entity) for key, entity, limit in of.rules(kind) if _is_own(key)]
        own.sort(key=lambda each: -each[0])
        for (user, client_id), entity, limit in of.rules(kind):
            if user not in {None, DEFAULT} or client_id in {None, DEFAULT}:
                continue
            (witness,) = of.client_ids(client_id)
            anybody = of.winner(of.user, witness, kind)
            if anybody is None or anybody.entity != entity:
                continue  # reported by ``never_matching``
            larger = [each for each in own[:_MOST_USERS] if each[0] > limit]
            found = []
            for _, (name, _), of_user in larger:
                winner = of.winner(of.users(name)[0], witness, kind)
                if winner is not None and winner.entity == of_user:
                    found.append(winner)
            if found:
                more = f", and {len(found) - 1} more" if len(found) > 1 else ""
                at_least = " at least" if len(larger) == _MOST_USERS else ""
                who = f"{_said(found[0])} with {written(found[0].limit)}{more}{at_least}"
                message = f"a larger quota of a user takes precedence over this one: {who}"
                fix = "write a cap for the client-id, or a quota for each such user and the client-id"
                yield "precedence-surprise", entity, kind, message, fix


def empty_client_ids(of: Witnesses) -> Iterator[Said]:
    """Yield rules for the default client-id that a client evades by having no client-id."""
    for kind in CLIENT_KINDS:
        for (user, client_id), entity, limit in of.rules(kind):
            if client_id is not DEFAULT:
                continue
            (name, *_) = of.users(user)
            verdict = of.explainer.verdict(name, "", kind)
            if any(cap.limit <= limit and not cap.terms.shadow for cap in verdict.caps):
                continue
            winner = verdict.winner
            if winner is not None and winner.limit <= limit:
                continue
            gets = "no limit" if winner is None else f"{written(winner.limit)} of {_said(winner)}"
            who = Entity(DEFAULT if user is None else user).describe()
            what = "cap" if user is None else "quota"
            message = f"it does not apply to a client without a client-id, which has {gets}"
            yield "empty-client-id-escapes", entity, kind, message, f"write a {what} for {who}, no larger than this one"


def multiplied(of: Witnesses) -> Iterator[Said]:
    """Yield rules that a client multiplies by making up client-ids, with no cap over all of them."""
    for kind in CLIENT_KINDS:
        for (user, client_id), entity, _ in of.rules(kind):
            if client_id is not DEFAULT and not isinstance(client_id, Prefix):
                continue
            (name, *_), (one,) = of.users(user), of.client_ids(client_id)
            verdicts = [of.explainer.verdict(name, each, kind) for each in (one, one + of.client_id)]
            counters = [each.winner.counted for each in verdicts if each.winner and each.winner.entity == entity]
            common = set.intersection(
                *({cap.counted for cap in each.caps if not cap.terms.shadow} for each in verdicts)
            )
            if len({*counters}) > 1 and not common:
                who = Entity(DEFAULT if user is None else user).describe()
                message = "a client that makes up client-ids gets the full limit for each"
                yield "client-id-multiplies", entity, kind, message, f"write a cap for {who} beside it"


def members(of: Witnesses) -> Iterator[Said]:
    """Yield rules of groups some of whose members have a quota of their own instead."""
    for kind in CLIENT_KINDS:
        for (user, client_id), entity, _ in of.rules(kind):
            if not isinstance(user, Group) or client_id is not None:
                continue
            own = []
            for name in of.users(user):
                winner = of.winner(name, of.client_id, kind)
                if winner is not None and winner.entity.user == name:
                    own.append(winner)
            if own:
                more = f", and {len(own) - 1} more" if len(own) > 1 else ""
                message = (
                    f"a member has a quota of its own instead, which does not count towards this: {_said(own[0])}{more}"
                )
                fix = "write the group's as a cap if it is for all of them, or take the user out of the group"
                yield "group-member-has-own", entity, kind, message, fix


def shadows(of: Witnesses) -> Iterator[Said]:
    """Yield rules in shadow that take precedence over an enforced limit."""
    for kind in CLIENT_KINDS:
        terms = of.policy.book(kind).terms
        for key, entity, _ in of.rules(kind):
            if not terms.get(key, PLAIN).shadow:
                continue
            verdict = of.explainer.verdict(of.users(key[0])[0], of.client_ids(key[1])[0], kind)
            if verdict.winner is None or verdict.winner.entity != entity:
                continue
            for level in verdict.levels:
                of_level = terms.get((level.entity.user, level.entity.client_id), PLAIN)
                if level.limit is not None and not level.reached and not of_level.shadow:
                    at = f"{level.entity.describe()} ({level.where})"
                    message = f"while it is in shadow its clients are unlimited; without it, {at} would limit them"
                    fix = "if that is not intended, use `proposed` beside an enforced limit"
                    yield "shadow-hides-limit", entity, kind, message, fix
                    break


def idle_caps(of: Witnesses) -> Iterator[Said]:
    """Yield caps of a user or a group that are not below the sum of its quotas.

    Only where that is certain: each user has one counter for all client-ids, in force, and with the burst of the cap.
    """
    for kind in CLIENT_KINDS:
        pairs = {user for user, client_id in of.policy.book(kind).limits if user is not None and client_id is not None}
        for (user, client_id), limit in of.policy.book(kind, cap=True).limits.items():
            if client_id is not None or not isinstance(user, str | Group):
                continue
            terms = of.policy.book(kind, cap=True).terms.get((user, None), PLAIN)
            together: dict[str, float] = {}
            for name in of.users(user):
                winner = of.winner(name, of.client_id, kind)
                group = of.policy.group_of.get(name, "")
                if (
                    winner is None
                    or winner.terms.shadow
                    or winner.terms.burst_ms != terms.burst_ms
                    or winner.terms.of_cluster is not terms.of_cluster
                    or winner.entity.user is None
                    or pairs & {name, Group(group), DEFAULT}
                ):
                    break
                together[winner.counted] = winner.limit
            else:
                total = sum(together.values())
                if together and total <= limit:
                    entity = of.policy.book(kind, cap=True).entities[user, client_id]
                    message = f"it has no effect: quotas allow {written(total)} all together"
                    yield "cap-never-holds", entity, kind, message, "lower it, or remove it"


def _is_own(key: Key) -> bool:
    return isinstance(key[0], str | Group) and key[1] is None


def _said(rule: Rule) -> str:
    return f"{rule.entity.describe()} ({rule.where})"
