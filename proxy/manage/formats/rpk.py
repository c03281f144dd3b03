"""The quotas of Redpanda's ``rpk cluster quotas describe --format yaml | json``, which its ``import --from`` takes."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from config.document import parse_document
from config.nodes import Node
from config.problems import InvalidValue, Problem, suggestion
from proxy.manage.formats.reading import DEFAULT, Rules, at, given, items, text
from proxy.manage.formats.rules import Rule
from proxy.manage.wording import names
from quotas.entities import Default, Prefix
from quotas.numbers import java_double
from quotas.policy import Policy
from quotas.stores.edit import number, written_name

_DEFAULT: Final = "<default>"
"""The default entity; a client that is called so cannot be told from it."""
_PREFIX: Final = "client-id-prefix"
_TYPES: Final = ("client-id", _PREFIX, "user", "ip")
_LISTING: Final = re.compile(r"[\"']?entity[\"']?:\s*(?:#.*)?(?:\[|\n\s*-)")
_HEAD: Final = """\
# rpk cluster quotas import --from THIS_FILE
# Redpanda removes all quotas that are not in it.
"""


def is_listing(source: str) -> bool:
    """Whether a text looks like one: an entity is a list there, and a mapping in a quota file."""
    return _LISTING.search(source) is not None


def refuse(rule: Rule) -> str:
    """Return why rpk cannot say a rule."""
    if _DEFAULT in names(rule.entity).values():
        return f"rpk takes a client or user called {_DEFAULT} for the default"
    return ""


def write(rules: Sequence[Rule], policy: Policy) -> str:  # noqa: ARG001  as all formats
    """Return the rules as YAML."""
    lines = [line for rule in rules for line in _lines(rule)]
    return _HEAD + "\n".join(["quotas:", *lines] if lines else ["quotas: []"]) + "\n"


def _lines(rule: Rule) -> Iterator[str]:
    yield "  - entity:"
    for kind, name in names(rule.entity).items():
        of_prefix = isinstance(name, Prefix)
        shown = name.text if isinstance(name, Prefix) else _DEFAULT if isinstance(name, Default) else str(name)
        yield f"      - name: {written_name(shown, in_quotes=True)}"
        yield f"        type: {_PREFIX if of_prefix else kind}"
    yield "    values:"
    for kind, limit in rule.limits.items():
        yield f"      - key: {kind}"
        yield f'        values: "{number(float(limit)) or java_double(float(limit))}"'


def read(source: str, listing: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas of a listing. Raises ConfigError."""
    document = parse_document(source, listing, "write quotas as `rpk cluster quotas describe --format yaml` does")
    rules = Rules()
    quotas = document.root.get("quotas")
    try:
        for index, quota in enumerate(items(quotas, "quotas")):
            problem = at(document, ("quotas", index))
            try:
                of_quota = given(quota, "a quota")
                rules.add(dict(_names(of_quota.get("entity"))), list(_limits(of_quota.get("values"))), problem)
            except InvalidValue as invalid:
                rules.wrong.append(problem(invalid))
    except InvalidValue as invalid:
        rules.wrong.append(at(document, ("quotas",))(invalid))
    return rules.policy()


def _names(entity: Node) -> Iterator[tuple[str, str | Default | Prefix]]:
    seen = set()
    for each in items(entity, "entity"):
        part = given(each, "a part of an entity")
        kind, name = text(part.get("type"), "type"), text(part.get("name"), "name")
        if kind not in _TYPES:
            raise InvalidValue(f"{kind!r} is not a type of entity", suggestion(kind, _TYPES))
        dimension = "client-id" if kind == _PREFIX else kind
        if dimension in seen:
            raise InvalidValue(f"{dimension} stands twice in one entity", "leave one of them out")
        seen.add(dimension)
        yield dimension, Prefix(name) if kind == _PREFIX else DEFAULT if name == _DEFAULT else name


def _limits(values: Node) -> Iterator[tuple[str, str]]:
    for each in items(values, "values"):
        value = given(each, "a value")
        yield text(value.get("key"), "key"), text(value.get("values"), "values")
