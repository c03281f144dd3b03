"""``sluice quotas lint``: quotas that are probably mistakes, verified with the engine.

To judge a rule the engine is asked about a *witness*: the client to which the rule most probably applies. A user or
client-id that no rule names ("somebody else") represents all such; if the rule does not apply even to it, it applies to
none.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
from prometheus_client.parser import text_string_to_metric_families

from config.problems import InvalidValue
from config.settings import FileStore, Quotas
from proxy.checks.double_enforcement import of_same_quotas
from proxy.checks.explain import exempt_by, written
from proxy.checks.health import AdminLogin, get
from proxy.live.options import admin_options
from proxy.manage import precedence_findings
from proxy.manage.precedence_findings import Said
from proxy.manage.target import EXIT_FAILED, AnsweringCommand, load_target, settings_of, target_options
from quotas.entities import Entity, Group
from quotas.kinds import BYTES, QuotaKind
from quotas.policy import Policy
from quotas.stores import likely_mistakes
from quotas.stores.base import Loaded, StoreError
from quotas.stores.layers import Layers

_MOST_SHOWN: Final = 20
"""Findings shown of each kind, on a terminal."""

NAMES: Final = (
    "never-matches", "precedence-surprise", "empty-client-id-escapes", "client-id-multiplies",
    "group-member-has-own", "shadow-hides-limit", "cap-never-holds", "hidden-by-layer", "enforced-twice",
    "exempt-has-quota", "lets-nothing-through", "below-one-batch", "below-one-request", "below-one-partition",
    "default-is-a-name", "glob-is-a-name", "several-in-one-name", "principal-type-in-name", "anonymous-misspelt",
    "variable-in-name", "whitespace-in-name", "invisible-in-name", "differs-in-case", "unused-group",
    "user-never-seen", "of-the-store",
)  # fmt: skip
"""The names of findings: stable, because pipelines refer to them. docs/managing-quotas.md describes each."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A probable mistake: entity, place, message and fix; ``kinds``: the quotas that it concerns, if any."""

    name: str
    where: str
    entity: str | None
    kinds: tuple[QuotaKind, ...]
    message: str
    fix: str

    def __str__(self) -> str:
        kinds = f"{', '.join(self.kinds)}: " if self.kinds else ""
        entity = f"{self.entity}: " if self.entity else ""
        return f"{self.where}: {self.name}: {entity}{kinds}{self.message}; {self.fix}".removesuffix("; ")


def look(loaded: Loaded, settings: Quotas | None, unseen: Sequence[str] = ()) -> list[LintFinding]:
    """Return the findings about a store's quotas, in the order of its rules. ``settings`` has the exemptions,
    ``unseen`` the users that a running proxy has never seen.
    """
    policy = loaded.policy
    said = chain(
        _names(policy),
        _limits(policy),
        precedence_findings.look(policy, loaded.where),
        _exempt(policy, settings),
        _hidden(loaded),
        _never_seen(policy, {*unseen}),
    )
    kinds: dict[tuple[str, Entity | None, str, str], list[QuotaKind]] = {}
    for name, entity, kind, message, fix in said:
        kinds.setdefault((name, entity, message, fix), []).extend([kind] if kind is not None else [])
    order = {entity: place for place, entity in enumerate((*policy.limits, None))}
    found = []
    for (name, entity, message, fix), of in sorted(kinds.items(), key=lambda each: order[each[0][1]]):
        where, whose = (loaded.source, None) if entity is None else (loaded.where(entity), entity.describe())
        found.append(LintFinding(name, where, whose, tuple(of), message, fix))
    # Named warnings are found above, too.
    of_store = [("of-the-store", problem) for problem in loaded.warnings if not problem.name]
    if settings is not None and settings.mode == "enforce" and not isinstance(settings.layers[-1], FileStore):
        of_store += [("enforced-twice", problem) for problem in of_same_quotas(loaded)]
    return found + [
        LintFinding(name, each.file, each.path or None, (), each.message, each.hint) for name, each in of_store
    ]


def _mistake(
    mistake: InvalidValue | None, entity: Entity | None, what: str = "", kind: QuotaKind | None = None
) -> Iterator[Said]:
    """Yield a finding for a mistake, if there is one; ``what`` is its subject."""
    if mistake is not None:
        yield mistake.name, entity, kind, f"{what}{mistake.message}", mistake.hint


def _names(policy: Policy) -> Iterator[Said]:
    folded: dict[object, Entity] = {}
    for entity in policy.limits:
        for dimension, name in (("user", entity.user), ("client-id", entity.client_id)):
            if isinstance(name, str):
                yield from _mistake(likely_mistakes.of_name(dimension, name), entity, f"{dimension} ")
        twin = folded.setdefault(likely_mistakes.folded(entity), entity)
        if twin is not entity:
            yield from _mistake(likely_mistakes.of_case(twin.describe()), entity)
    used = {entity.user.name for entity in policy.limits if isinstance(entity.user, Group)}
    for group, users in policy.groups.items():
        for user in users:
            yield from _mistake(likely_mistakes.of_name("user", user), None, f"in the group {group}: user ")
        if group not in used:
            yield from _mistake(likely_mistakes.of_unused_group(), None, f"the group {group}: ")


def _limits(policy: Policy) -> Iterator[Said]:
    for entity, limits in policy.limits.items():
        terms = policy.terms.get(entity)
        for kind, limit in limits.items():
            if limit <= 0:
                message, fix = "a limit of 0 lets nothing through", "remove it for no limit"
                yield "lets-nothing-through", entity, kind, message, fix
                continue
            mistake = likely_mistakes.of_limit(kind, limit, written(limit), None if terms is None else terms.burst_ms)
            if mistake is None and kind.row.unit is BYTES and limit < likely_mistakes.BATCH_BYTES:
                mistake = likely_mistakes.of_small_rate(limit)
            yield from _mistake(mistake, entity, kind=kind)


def _hidden(loaded: Loaded) -> Iterator[Said]:
    """Yield the limits of a layer that a layer above overrides."""
    for part in loaded.parts if isinstance(loaded, Layers) else ():
        for entity, limits in part.policy.limits.items():
            for kind, limit in limits.items():
                if loaded.where(entity, kind) != part.where(entity):
                    wins = loaded.policy.limits[entity][kind]
                    sets = "the same" if wins == limit else written(wins)
                    message = f"{written(limit)} at {part.where(entity)} has no effect: a layer above sets {sets}"
                    yield "hidden-by-layer", entity, kind, message, "leave it in one of them"


def _exempt(policy: Policy, settings: Quotas | None) -> Iterator[Said]:
    if settings is None:
        return
    for entity in policy.limits:
        names = (name if isinstance(name, str) else "" for name in (entity.user, entity.client_id, entity.ip))
        if what := exempt_by(settings.exempt, *names):
            fix = "remove the quota, or take it out of quotas.exempt"
            yield "exempt-has-quota", entity, None, f"the {what} is exempt from all quotas", fix


def _never_seen(policy: Policy, unseen: set[str]) -> Iterator[Said]:
    """Yield a finding for each rule for one of the users, by name or as a member of a group."""
    name = "user-never-seen"
    fix = (
        "look up the client's actual name in sluice_client_connections_opened_total: sasl.oauth, mapping rules and "
        "principal_to_local_rules determine names"
    )
    for entity in policy.limits:
        if entity.user in unseen:
            yield name, entity, None, "no client has used this user name since the proxy has had the quota", fix
    for group, members in policy.groups.items():
        for user in members:
            if user in unseen:
                yield name, None, None, f"in the group {group}: no client has used the name {user}", fix


def users_unseen(url: str, login: AdminLogin = AdminLogin()) -> list[str]:  # noqa: B008  immutable
    """Return the users with quotas that no client has used, at most a hundred, from the metrics of a running proxy.

    Raises StoreError.
    """
    page = f"{url.rstrip('/')}/metrics"
    try:
        answer = get(page, login=login)
    except OSError as error:
        raise StoreError(f"--admin: {page} does not answer: {error}") from None
    except ValueError as error:
        raise StoreError(f"--admin: {error}") from None
    if answer.status != 200:
        raise StoreError(f"--admin: {page} does not answer: status {answer.status}")
    lines = [line for line in answer.body.splitlines(keepends=True) if line.startswith(b"sluice_quota_user")]
    families = text_string_to_metric_families(b"".join(lines).decode("utf-8", "replace"))
    samples = [sample for family in families for sample in family.samples]
    if all(sample.name != "sluice_quota_users_unseen" for sample in samples):
        raise StoreError(f"--admin: {page} lacks sluice_quota_users_unseen: is it this version of Sluice?")
    return [each.labels["user"] for each in samples if each.name == "sluice_quota_user_unseen" and each.value == 1]


@click.command("lint", cls=AnsweringCommand, short_help="Show quotas that are probably mistakes.")
@target_options
@click.option("--strict", is_flag=True, help=f"Exit {EXIT_FAILED} if anything is found.")
@click.option(
    "--ignore",
    metavar="NAME",
    multiple=True,
    type=click.Choice(NAMES),
    help="Leave out findings of this name; may be given several times.",
)
@admin_options(
    "Also ask this admin port, as in http://127.0.0.1:9404, which users with quotas no client has ever been."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def lint(
    ignore: tuple[str, ...],
    output: str,
    admin: str | None,
    token_file: Path | None,
    ca: Path | None,
    *,
    strict: bool,
    **target: Any,
) -> None:
    """Print quotas that are probably mistakes: rules without clients, limits below one batch, surprising precedence.

    Each finding has a name (docs/managing-quotas.md lists them), a place and a fix.

    \b
    sluice quotas lint -c sluice.yaml
    sluice quotas lint --file quotas.yaml --strict --ignore below-one-batch

    Exit status: 0, with --strict 1 if anything is found; 2 if the quotas cannot be read.
    """  # noqa: D301  \b is click's
    loaded, settings = load_target(**target), settings_of(target)
    try:
        unseen = [] if admin is None else users_unseen(admin, AdminLogin().given(token_file, ca))
    except InvalidValue as error:
        raise StoreError(error.message) from None
    found = [finding for finding in look(loaded, settings, unseen) if finding.name not in ignore]
    if output == "json":
        click.echo(json.dumps({"findings": [asdict(each) for each in found]}, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(found, loaded.source, len(loaded.policy.limits))))
    sys.exit(EXIT_FAILED if strict and found else 0)


def _lines(found: list[LintFinding], source: str, rules: int) -> list[str]:
    said = []
    shown: Counter[str] = Counter()
    for finding in found:
        shown[finding.name] += 1
        if shown[finding.name] <= _MOST_SHOWN:
            said.append(str(finding))
    said += [f"and {number - _MOST_SHOWN} more of {name}" for name, number in shown.items() if number > _MOST_SHOWN]
    findings = f"{len(found)} finding{'' if len(found) == 1 else 's'}" if found else "nothing found"
    return [*said, f"{source}: {findings} ({rules} rule{'' if rules == 1 else 's'})"]
