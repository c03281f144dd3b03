"""KafkaUser resources of Strimzi: ``spec.quotas``, as its User Operator sets them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from config.document import Document, parse_document
from config.nodes import Mapping, Node, Scalar
from config.problems import ConfigError, InvalidValue, Problem, Steps, suggestion
from proxy.manage.formats.reading import Rules, at, given, items, text
from proxy.manage.formats.rules import Rule
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.edit import number

_FIELDS: Final = {
    "producerByteRate": QuotaKind.PRODUCER_BYTE_RATE,
    "consumerByteRate": QuotaKind.CONSUMER_BYTE_RATE,
    "requestPercentage": QuotaKind.REQUEST_PERCENTAGE,
    "controllerMutationRate": QuotaKind.CONTROLLER_MUTATION_RATE,
}
_NAMES: Final = {kind: field for field, kind in _FIELDS.items()}
_CERTIFIED: Final = ("tls", "tls-external")
"""Users with these kinds of authentication are called CN=NAME by the brokers; all others NAME."""
_COMMON_NAME: Final = "CN="
_RESOURCE: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_API: Final = re.compile(r"\bapiVersion[\"']?\s*:\s*[\"']?kafka\.strimzi\.io/")
_BORDER: Final = re.compile(r"^(?:---|\.\.\.)(?=\s|$).*\n?", re.MULTILINE)
_HEAD: Final = "# In place of CLUSTER, write the name of your Kafka resource: its operator sees no other KafkaUsers.\n"
_TO_WRITE: Final = "write a KafkaUser"


def is_manifest(source: str) -> bool:
    """Whether a text looks like one."""
    return _API.search(source) is not None


# ------------------------------------------------------------------------------------------------------------- writing


def refuse(rule: Rule) -> str:
    """Return why no KafkaUser can say a rule."""
    entity = rule.entity
    if not isinstance(entity.user, str) or entity.client_id is not None:
        return "a KafkaUser has quotas of one user"
    if not _RESOURCE.fullmatch(entity.user.removeprefix(_COMMON_NAME)):
        return "no resource of Kubernetes can have this name (lower-case letters, digits, - and .)"
    return ""


def refuse_limit(key: str, limit: float) -> str:
    """Return why a KafkaUser cannot say a limit."""
    if key != QuotaKind.CONTROLLER_MUTATION_RATE and not float(limit).is_integer():
        return "is not a whole number, and a KafkaUser takes no others"
    return "has no end, or too many digits" if number(float(limit)) is None else ""


def write(rules: Sequence[Rule], policy: Policy) -> str:  # noqa: ARG001  as all formats
    """Return KafkaUsers, with the label that an operator looks for still to be filled in."""
    return _HEAD + "".join(f"{line}\n" for rule in rules for line in _resource(rule))


def _resource(rule: Rule) -> Iterator[str]:
    user = str(rule.entity.user)
    name = user.removeprefix(_COMMON_NAME)
    yield from (
        "---",
        "apiVersion: kafka.strimzi.io/v1beta2",
        "kind: KafkaUser",
        "metadata:",
        f'  name: "{name}"',
        "  labels:",
        "    strimzi.io/cluster: CLUSTER",
        "spec:",
    )
    if name != user:
        yield from ("  authentication:", "    type: tls-external")
    yield "  quotas:"
    for kind, limit in rule.limits.items():
        yield f"    {_NAMES[kind]}: {number(float(limit))}"


# ------------------------------------------------------------------------------------------------------------- reading


def read(source: str, manifest: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas of all KafkaUsers in a manifest, or in a list as kubectl prints it. Raises ConfigError."""
    rules = Rules()
    for line, document in _documents(source, manifest):
        _read(rules, document, (), document.root, line)
    return rules.policy()


def _documents(source: str, manifest: str) -> Iterator[tuple[int, Document]]:
    """Yield the documents of a file, with the number of lines before each."""
    start = line = 0
    borders = [(found.start(), found.end()) for found in _BORDER.finditer(manifest)]
    for before, after in (*borders, (len(manifest), len(manifest))):
        of_document = manifest[start:before]
        if any(each.strip() and not each.lstrip().startswith("#") for each in of_document.splitlines()):
            try:
                yield line, parse_document(source, of_document, _TO_WRITE)
            except ConfigError as error:
                raise ConfigError(replace(each, line=each.line + line) for each in error.problems) from None
        line += manifest.count("\n", start, after)
        start = after


def _read(rules: Rules, document: Document, steps: Steps, resource: Mapping, line: int) -> None:
    problem = at(document, steps, line)
    kind = resource.get("kind")
    try:
        if kind == "List":
            for index, item in enumerate(items(resource.get("items"), "items")):
                _read(rules, document, (*steps, "items", index), given(item, "a resource"), line)
        elif kind == "KafkaUser":
            _read_user(rules, resource, problem)
        else:
            rules.notes.append(problem(InvalidValue(f"{kind or 'this'} is no KafkaUser: skipped")))
    except InvalidValue as invalid:
        rules.wrong.append(problem(invalid))


def _read_user(rules: Rules, resource: Mapping, problem: Callable[[InvalidValue], Problem]) -> None:
    spec = given(resource.get("spec"), "spec")
    name = text(given(resource.get("metadata"), "metadata").get("name"), "metadata.name")
    authentication: Node = given(spec.get("authentication"), "spec.authentication").get("type")
    user = f"{_COMMON_NAME}{name}" if authentication in _CERTIFIED else name
    limits: list[tuple[str, str]] = []
    for key, value in given(spec.get("quotas"), "spec.quotas").items():
        if key not in _FIELDS:
            raise InvalidValue(f"spec.quotas.{key} is no quota of a KafkaUser", suggestion(key, list(_FIELDS)))
        if isinstance(value, Scalar):  # null is a field that was left out
            limits.append((_FIELDS[key].value, str(value)))
        elif value is not None:
            raise InvalidValue(f"spec.quotas.{key} must be a number")
    if limits:
        rules.add({"user": user}, limits, problem)
