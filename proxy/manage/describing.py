"""``sluice quotas describe``: selects configured quotas, and prints them as text, as a table or as data."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from proxy.manage.grammar import Named, QuotaArguments, QuotaCommand, entity_options
from proxy.manage.target import EXIT_FAILED, load_target, place_of, target_options, warn
from proxy.manage.wording import described, names, number_in_json, plain, terms_as_pairs, terms_described, terms_written
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.names import configured_as
from quotas.policy import Policy, Terms
from quotas.stores.base import Loaded, UnreadableEntry
from quotas.stores.filters import Specified
from quotas.stores.unlimited import as_described
from quotas.texts import aligned, shown

_DIMENSIONS: Final = ("user", "client-id", "ip")


def select(loaded: Loaded, arguments: QuotaArguments) -> list[Entity]:
    """Return whose rules are requested, in the order of the store: all, or as kafka-configs' strict filter selects.

    Caps and other rules that Kafka lacks are included: a cap is listed with the quota of its entity.
    """
    return [entity for entity, limits in loaded.policy.limits.items() if limits and _is_among(entity, arguments)]


def unread_among(loaded: Loaded, arguments: QuotaArguments) -> list[UnreadableEntry]:
    """Return the requested entities that could not be read."""
    return [each for each in loaded.unread if _is_among(each.entity, arguments)]


def _is_among(entity: Entity | None, arguments: QuotaArguments) -> bool:
    return not arguments.targets or (
        entity is not None and any(_matches(target, names(entity)) for target in arguments.targets)
    )


def _matches(target: Mapping[str, Named], of_entity: Mapping[str, Name]) -> bool:
    wanted = {kind: configured_as(name) if isinstance(name, str) else name for kind, name in target.items()}
    return wanted.keys() == of_entity.keys() and all(
        wanted[kind] in (Specified.ANY, name) for kind, name in of_entity.items()
    )


def as_text(policy: Policy, listed: Sequence[Entity]) -> Iterator[str]:
    """Yield lines in the words of kafka-configs; lines that it would not print begin with "Sluice"."""
    for entity in listed:
        yield described(entity, policy.limits[entity])
        if entity in policy.terms:
            yield terms_described(entity, policy.terms[entity])


def as_table(loaded: Loaded, listed: Sequence[Entity]) -> Iterator[str]:
    """Yield the lines of a table: one row per rule, one column per kind of limit that occurs."""
    limits, all_terms = loaded.policy.limits, loaded.policy.terms
    dimensions = [each for each in _DIMENSIONS if any(each in names(entity) for entity in listed)]
    kinds = [kind for kind in QuotaKind if any(kind in limits[entity] for entity in listed)]
    caps = any(entity.cap for entity in listed)
    terms = any(entity in all_terms for entity in listed)
    head = [*["rule"] * caps, *dimensions, *map(str, kinds), *["terms"] * terms, "where"]
    rows = [
        [
            *["cap" if entity.cap else "quota"] * caps,
            *(_cell(names(entity).get(kind)) for kind in dimensions),
            *(plain(kind, limits[entity].get(kind)) for kind in kinds),
            *[",".join(terms_as_pairs(all_terms.get(entity, Terms()))) or "-"] * terms,
            place_of(loaded, entity) or "-",
        ]
        for entity in listed
    ]
    yield from aligned([head, *rows], right=frozenset(map(str, kinds)))


def _cell(name: Name) -> str:
    match name:
        case None:
            return "-"
        case Default():
            return "<default>"
        case Group(group):
            return f"group:{shown(group)}"
        case Prefix(prefix):
            return f"{shown(prefix)}*"
    return shown(str(name))


# ------------------------------------------------------------------------------------------------------------ as data


def as_data(loaded: Loaded, listed: Sequence[Entity]) -> dict[str, Any]:
    """Return the data for JSON: entities and terms as in a quota file, limits as numbers, and places."""
    data: dict[str, Any] = {
        "source": loaded.source,
        "quotas": [_datum(loaded, entity) for entity in listed if not entity.cap],
    }
    if caps := [_datum(loaded, entity) for entity in listed if entity.cap]:
        data["caps"] = caps
    groups = {entity.user.name for entity in listed if isinstance(entity.user, Group)}
    if used := {str(name): list(map(str, users)) for name, users in loaded.policy.groups.items() if name in groups}:
        data["groups"] = used
    return data


def _datum(loaded: Loaded, entity: Entity) -> dict[str, Any]:
    policy = loaded.policy
    limits = {str(kind): number_in_json(as_described(kind, limit)) for kind, limit in policy.limits[entity].items()}
    datum = {"entity": entity.as_data(), "limits": limits, **terms_written(policy.terms.get(entity, Terms()))}
    return {**datum, "where": where} if (where := place_of(loaded, entity)) else datum


@click.command("describe", cls=QuotaCommand, short_help="Show quotas.")
@target_options
@entity_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "table", "json"]),
    default="text",
    help="text: as kafka-configs. The others also show where each quota is defined.",
)
@click.option("--strict", is_flag=True, help=f"Exit {EXIT_FAILED} if a requested quota could not be read.")
def describe(arguments: QuotaArguments, output: str, *, strict: bool, **target: Any) -> None:
    """Show the quotas that are configured: all, or exactly those of the named entities.

    \b
    sluice quotas describe --file quotas.yaml -o table
    sluice quotas describe -c sluice.yaml --user alice
    sluice quotas describe -c sluice.yaml user client-id     (all pairs)
    """  # noqa: D301  \b is click's
    if arguments.added or arguments.removed:
        raise click.UsageError("limits are for alter; name users, client-ids or addresses")
    loaded = load_target(**target)
    warn(loaded.warnings)
    listed, unread = select(loaded, arguments), unread_among(loaded, arguments)
    if output == "json":
        click.echo(json.dumps(as_data(loaded, listed), indent=2))
    else:
        for line in as_table(loaded, listed) if output == "table" else as_text(loaded.policy, listed):
            click.echo(line)
    if strict and unread:
        click.echo(f"error: not all quotas could be read ({len(unread)} skipped)", err=True)
        sys.exit(EXIT_FAILED)
