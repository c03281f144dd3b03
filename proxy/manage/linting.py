"""Findings about quotas that are probably mistakes, verified with the engine.

To judge a rule the engine is asked about a *witness*: the client to which the rule most probably applies. A user or
client-id that no rule names ("somebody else") represents all such; if the rule does not apply even to it, it applies to
none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from config.settings import FileStore, Quotas
from proxy.checks.double_enforcement import of_same_quotas
from proxy.checks.explain import Explainer, written
from proxy.manage import precedence_findings
from proxy.manage.precedence_findings import Said, Witnesses
from proxy.manage.unseen import never_seen
from quotas.entities import Entity, Group
from quotas.exemptions import Exemptions
from quotas.kinds import BYTES, QuotaKind
from quotas.names import configured_as
from quotas.policy import Policy
from quotas.stores import likely_mistakes
from quotas.stores.base import Loaded
from quotas.stores.layers import Layers

NAMES: Final = {
    "never-matches": "a rule without clients: other rules take precedence for all of them",
    "precedence-surprise": "a user with a larger quota of its own, which takes precedence over that of a client-id",
    "empty-client-id-escapes": "a quota of the default client-id, which does not apply to clients without a client-id",
    "client-id-multiplies": "a quota for each client-id separately, although clients choose their client-ids",
    "group-member-has-own": "a user with a quota of its own, which does not count towards the quota of its group",
    "shadow-hides-limit": "a rule in shadow that takes precedence over an enforced limit",
    "cap-never-holds": "a cap that is not below the sum of the quotas under it",
    "hidden-by-layer": "a limit in a store of `quotas.stores` that a store above overrides",
    "enforced-twice": "quotas of the brokers that Sluice enforces as well",
    "exempt-has-quota": "a quota of a user, client-id or address that is exempt (`quotas.exempt`)",
    "lets-nothing-through": "a limit of 0",
    "below-one-batch": "a byte rate below 16 KiB, the default of `batch.size`",
    "below-one-request": "a `request_percentage` that is less than one small request in ten seconds",
    "below-one-partition": "a `controller_mutation_rate` of less than one partition in its burst",
    "default-is-a-name": "a user or client-id called `default`, `<default>` or `*`",
    "glob-is-a-name": "a name with a wildcard or a regular expression, which is taken literally",
    "several-in-one-name": "a list of names in one",
    "principal-type-in-name": "`User:alice`, as ACLs write it",
    "anonymous-misspelt": "`anonymous` instead of `ANONYMOUS`",
    "variable-in-name": "`${NAME}`, which is not expanded",
    "whitespace-in-name": "a name that begins or ends with whitespace",
    "invisible-in-name": "a name with an invisible character",
    "differs-in-case": "two names that differ only in case",
    "unused-group": "a group without a quota",
    "user-never-seen": "a user with a quota that no client has used, according to a running proxy (`--admin`)",
    "of-the-store": "a warning of the store itself, as about a ZooKeeper node that is not a quota",
}
"""Name of each finding → its description. The names are stable: users' pipelines refer to them."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A probable mistake: entity, place, message and fix; ``kinds``: the quotas that it concerns, if any."""

    name: str
    where: str
    entity: str
    message: str
    fix: str
    kinds: tuple[QuotaKind, ...] = ()

    def __str__(self) -> str:
        kinds = f"{', '.join(self.kinds)}: " if self.kinds else ""
        entity = f"{self.entity}: " if self.entity else ""
        return f"{self.where}: {self.name}: {entity}{kinds}{self.message}; {self.fix}".removesuffix("; ")

    def as_data(self) -> dict[str, object]:
        return {
            "name": self.name,
            "where": self.where,
            "entity": self.entity or None,
            "kinds": [kind.value for kind in self.kinds],
            "message": self.message,
            "fix": self.fix,
        }


def lint(loaded: Loaded, settings: Quotas | None, unseen: Sequence[str] = ()) -> list[LintFinding]:
    """Return the findings about a store's quotas, in the order of its rules. ``settings`` has the exemptions,
    ``unseen`` the users that a running proxy has never seen.
    """
    policy = loaded.policy
    explainer = Explainer(policy, where=loaded.where)
    witnesses = Witnesses(policy, explainer)
    said = chain(
        _names(policy),
        _limits(policy),
        precedence_findings.never_matching(witnesses),
        precedence_findings.before_client_ids(witnesses),
        precedence_findings.empty_client_ids(witnesses),
        precedence_findings.multiplied(witnesses),
        precedence_findings.members(witnesses),
        precedence_findings.shadows(witnesses),
        precedence_findings.idle_caps(witnesses),
        _exempt(policy, settings),
        _hidden(loaded),
        never_seen(policy, unseen),
    )
    kinds: dict[tuple[str, Entity | None, str, str], list[QuotaKind]] = {}
    for name, entity, kind, message, fix in said:
        kinds.setdefault((name, entity, message, fix), []).extend([kind] if kind is not None else [])
    order = {entity: place for place, entity in enumerate(policy.limits)}
    found = [
        (
            len(order) if entity is None else order[entity],
            LintFinding(
                name,
                loaded.source if entity is None else loaded.where(entity),
                "" if entity is None else entity.describe(),
                message,
                fix,
                tuple(of),
            ),
        )
        for (name, entity, message, fix), of in kinds.items()
    ]
    found.sort(key=lambda each: each[0])
    of_store = [
        ("of-the-store", problem) for problem in loaded.warnings if not problem.name
    ]  # named ones are found above too
    if settings is not None and settings.mode == "enforce" and not isinstance(settings.layers[-1], FileStore):
        of_store += [("enforced-twice", problem) for problem in of_same_quotas(loaded)]
    return [each for _, each in found] + [
        LintFinding(name, problem.file, problem.path, problem.message, problem.hint) for name, problem in of_store
    ]


def _names(policy: Policy) -> Iterator[Said]:
    folded: dict[object, Entity] = {}
    for entity in policy.limits:
        for dimension, name in (("user", entity.user), ("client-id", entity.client_id)):
            if isinstance(name, str) and (mistake := likely_mistakes.of_name(dimension, name)) is not None:
                yield mistake.name, entity, None, f"{dimension} {mistake.message}", mistake.hint
        twin = folded.setdefault(likely_mistakes.folded(entity), entity)
        if twin is not entity:
            mistake = likely_mistakes.of_case(twin.describe())
            yield mistake.name, entity, None, mistake.message, mistake.hint
    used = {entity.user.name for entity in policy.limits if isinstance(entity.user, Group)}
    for group, users in policy.groups.items():
        for user in users:
            if (mistake := likely_mistakes.of_name("user", user)) is not None:
                yield mistake.name, None, None, f"in the group {group}: user {mistake.message}", mistake.hint
        if group not in used:
            mistake = likely_mistakes.of_unused_group()
            yield mistake.name, None, None, f"the group {group}: {mistake.message}", mistake.hint


def _limits(policy: Policy) -> Iterator[Said]:
    for entity, limits in policy.limits.items():
        terms = policy.terms.get(entity)
        for kind, limit in limits.items():
            if limit <= 0:
                yield (
                    "lets-nothing-through",
                    entity,
                    kind,
                    "a limit of 0 lets nothing through",
                    "remove it for no limit",
                )
                continue
            mistake = likely_mistakes.of_limit(kind, limit, written(limit), None if terms is None else terms.burst_ms)
            if mistake is None and kind.row.unit is BYTES and limit < likely_mistakes.BATCH_BYTES:
                mistake = likely_mistakes.of_small_rate(limit)
            if mistake is not None:
                yield mistake.name, entity, kind, mistake.message, mistake.hint


def _hidden(loaded: Loaded) -> Iterator[Said]:
    """Yield the limits of a layer that a layer above overrides."""
    parts = loaded.parts if isinstance(loaded, Layers) else ()
    for place, below in enumerate(parts):
        for entity, limits in below.policy.limits.items():
            for kind, limit in limits.items():
                above = next((part for part in parts[:place] if kind in part.policy.limits.get(entity, {})), None)
                if above is not None:
                    wins = above.policy.limits[entity][kind]
                    message = f"{written(limit)} at {below.where(entity)} has no effect: a layer above sets " + (
                        "the same" if wins == limit else written(wins)
                    )
                    yield "hidden-by-layer", entity, kind, message, "leave it in one of them"


def _exempt(policy: Policy, settings: Quotas | None) -> Iterator[Said]:
    if settings is None:
        return
    users = {configured_as(user) for user in settings.exempt.users}
    client_ids = {configured_as(client_id) for client_id in settings.exempt.client_ids}
    fix = "remove the quota, or take it out of quotas.exempt"
    networks = Exemptions((), (), settings.exempt.networks)
    for entity in policy.limits:
        if isinstance(entity.ip, str) and networks.covers_address(entity.ip):
            yield "exempt-has-quota", entity, None, "the address is exempt from all quotas", fix
        elif entity.user in users:
            yield "exempt-has-quota", entity, None, "the user is exempt from all quotas", fix
        elif entity.client_id in client_ids:
            yield "exempt-has-quota", entity, None, "the client-id is exempt from all quotas", fix
