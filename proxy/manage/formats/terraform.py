"""``kafka_quota`` resources of the provider Mongey/kafka.

Written in the JSON syntax of Terraform's configuration, a file ``quotas.tf.json``: Terraform reads it as it reads HCL,
and so does everybody else. Read from the same, and from ``terraform show -json`` of a state or a plan.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from config.document import Document, parse_document
from config.nodes import Node, Scalar
from config.nodes import Sequence as Items
from config.problems import InvalidValue, Problem, Steps, suggestion
from proxy.manage.formats.reading import DEFAULT, Rules, at, given, items, text
from proxy.manage.formats.rules import Rule
from proxy.manage.wording import names
from quotas.entities import Default
from quotas.policy import Policy
from quotas.stores.edit import number

_RESOURCE: Final = "kafka_quota"
_TYPES: Final = ("client-id", "user", "ip")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MARK: Final = re.compile(r"([$%])\{")
_ESCAPED: Final = re.compile(r"([$%])\1\{")
_TEMPLATE: Final = re.compile(r"(?<!\$)\$\{|(?<!%)%\{")
_UNPRINTED: Final = re.compile("[\\x7f-\\x9f\\u2028\\u2029\\ufeff\\ufffe\\uffff]")
"""In JSON as they are, in YAML not."""
_LOOKS: Final = re.compile(r'"(?:terraform_version|kafka_quota)"\s*:')


def is_terraform(source: str) -> bool:
    """Whether a text looks like one."""
    return source.lstrip().startswith("{") and _LOOKS.search(source) is not None


# ------------------------------------------------------------------------------------------------------------- writing


def refuse(rule: Rule) -> str:
    """Return why no kafka_quota can say a rule."""
    if len(names(rule.entity)) > 1:
        return "a kafka_quota is of a user, a client-id or an ip, and not of a pair"
    if rule.entity.client_id is not None and not isinstance(rule.entity.client_id, str | Default):
        return "a kafka_quota has no prefixes of client-ids"
    if any(isinstance(name, str) and _ESCAPED.search(name) for name in names(rule.entity).values()):
        return "$${ and %%{ cannot be told from what Terraform fills in"
    if any(number(float(limit)) is None for limit in rule.limits.values()):
        return "a limit without an end, or with too many digits"
    return ""


def write(rules: Sequence[Rule], policy: Policy) -> str:  # noqa: ARG001  as all formats
    """Return a configuration in JSON syntax. The default entity is one without ``entity_name``."""
    resources: dict[str, Any] = {}
    for rule in rules:
        ((kind, name),) = names(rule.entity).items()
        resource: dict[str, Any] = {"entity_type": kind}
        if not isinstance(name, Default):
            resource["entity_name"] = _MARK.sub(r"\1\1{", str(name))
        limits = {str(each): float(limit) for each, limit in rule.limits.items()}
        resource["config"] = {each: int(limit) if limit.is_integer() else limit for each, limit in limits.items()}
        resources[_label(kind, name, resources.keys())] = resource
    written = json.dumps({"resource": {_RESOURCE: resources}}, indent=2, ensure_ascii=False)
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", written) + "\n"


def _label(kind: str, name: object, taken: Any) -> str:
    plain = "default" if isinstance(name, Default) else _STRANGE.sub("_", str(name))[:64]
    label = first = f"{kind}_{plain}"
    count = 1
    while label in taken:
        count += 1
        label = f"{first}_{count}"
    return label


# ------------------------------------------------------------------------------------------------------------- reading


def read(source: str, written: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas of a configuration in JSON syntax, of a state or of a plan. Raises ConfigError."""
    document = parse_document(source, written, "write what `terraform show -json` prints, or a .tf.json")
    rules = Rules()
    try:
        for steps, resource, in_configuration in _resources(document):
            problem = at(document, steps)
            try:
                rules.add(*_rule(resource, in_configuration=in_configuration), problem)
            except InvalidValue as invalid:
                rules.wrong.append(problem(invalid))
    except InvalidValue as invalid:
        rules.wrong.append(at(document, ())(invalid))
    return rules.policy()


def _resources(document: Document) -> Iterator[tuple[Steps, Node, bool]]:
    """Yield each kafka_quota with where it stands, and whether its texts are templates."""
    of_type = given(given(document.root.get("resource"), "resource").get(_RESOURCE), _RESOURCE)
    for label, written in of_type.items():
        steps: Steps = ("resource", _RESOURCE, str(label))
        if isinstance(written, Items):  # a block may be a list of one
            for index, each in enumerate(written):
                yield (*steps, index), each, True
        else:
            yield steps, written, True
    for key in ("values", "planned_values"):
        if key in document.root:
            module = given(document.root[key], key).get("root_module")
            yield from _of_module((key, "root_module"), module)


def _of_module(steps: Steps, module: Node) -> Iterator[tuple[Steps, Node, bool]]:
    of_module = given(module, "a module")
    for index, each in enumerate(items(of_module.get("resources"), "resources")):
        resource = given(each, "a resource")
        if resource.get("type") == _RESOURCE and resource.get("mode", "managed") == "managed":
            yield (*steps, "resources", index, "values"), resource.get("values"), False
    for index, child in enumerate(items(of_module.get("child_modules"), "child_modules")):
        yield from _of_module((*steps, "child_modules", index), child)


def _rule(resource: Node, *, in_configuration: bool) -> tuple[dict[str, str | Default], list[tuple[str, str]]]:
    of_quota = given(resource, _RESOURCE)
    kind = text(of_quota.get("entity_type"), "entity_type")
    if kind not in _TYPES:
        raise InvalidValue(f"entity_type {kind!r} is not known", suggestion(kind, _TYPES))
    name = of_quota.get("entity_name")
    if not isinstance(name, Scalar | None):
        raise InvalidValue("entity_name must be a single value")
    limits = [
        (str(key), text(value, f"config.{key}"))
        for key, value in given(of_quota.get("config"), "config").items()
        if value is not None
    ]
    if not name:
        return {kind: DEFAULT}, limits
    return {kind: _without_templates(name) if in_configuration else str(name)}, limits


def _without_templates(name: str) -> str:
    if _TEMPLATE.search(name):
        raise InvalidValue(f"{name!r} is filled in by Terraform", "give what `terraform show -json` prints")
    return _ESCAPED.sub(r"\1{", name)
