"""The grammar of commands: entities and limits, by the flags of kafka-configs or as short words.

``--entity-type users --entity-name alice --entity-type clients --entity-default``, ``--user alice --client-defaults``
and ``user=alice client-id-default`` are the same entity. Two names of a type are two entities: ``user=alice user=bob``.
A type without a name (``--entity-type users``, ``user``) matches any, for commands that search.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import click

from config.problems import InvalidValue, suggestion, without_secrets
from config.units import parse_bytes, parse_number, parse_whole
from proxy.live.options import Command, with_options
from proxy.manage.target import StoreCommand
from quotas.entities import MAX_PREFIX_BYTES, Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind, Written
from quotas.networks import canonical_ip
from quotas.stores.filters import Specified

Named = str | Default | Specified | Group | Prefix
"""A name, the default entity, any name; or a group or prefix, which quota files have and Kafka has not."""

_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_FLAGS: Final = {"user": "user", "client": "client-id", "ip": "ip"}
_DEFAULTS: Final = {f"{flag}_defaults": dimension for flag, dimension in _FLAGS.items()}
_WORDS: Final = ("user", "client-id", "ip", "user-group", "client-id-prefix")
_DEFAULT_WORDS: Final = {f"{dimension}-default": dimension for dimension in _TYPES.values()}
_KINDS: Final = {kind.value: kind for kind in QuotaKind}
_PARSERS: Final[dict[Written, Callable[[str], float]]] = {
    Written.BYTES: parse_bytes,
    Written.NUMBER: parse_number,
    Written.WHOLE: parse_whole,
}

_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Infinity", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_MOST_SHOWN: Final = 60
_COMMA: Final = re.compile(r",(?=[^\]]*(?:\[|$))")
"""A comma between configs: not within brackets, as in ConfigCommand."""


@dataclass(frozen=True, slots=True)
class QuotaArguments:
    """Parsed arguments of a command, not yet checked against a store."""

    targets: tuple[Mapping[str, Named], ...] = ()
    """Each maps its entity types (user, client-id, ip), in that order, to names."""
    added: Mapping[str, float] = field(default_factory=dict)
    """Limits to set, by quota name."""
    removed: tuple[str, ...] = ()
    """Names of limits to remove."""

    def entities(self) -> list[Entity]:
        """Return the named entities. Raises UsageError if there is none, or if a type has no name."""
        if not self.targets:
            raise click.UsageError("no entity given: name one, as in --user alice or user=alice client-id=web")
        return [_entity(target) for target in self.targets]


def _entity(target: Mapping[str, Named]) -> Entity:
    names: dict[str, str | Default | Group | Prefix] = {}
    for dimension, name in target.items():
        if isinstance(name, Specified):
            flag = next(kind for kind, known in _TYPES.items() if known == dimension)
            raise click.UsageError(
                f"{dimension} without a name: give one, or the default: --entity-name or --entity-default behind "
                f"--entity-type {flag}, {dimension}=NAME or {dimension}-default"
            )
        names[dimension] = name
    try:
        return Entity(names.get("user"), names.get("client-id"), names.get("ip"))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def read(flags: Sequence[tuple[str, str]], words: Sequence[str] = ()) -> QuotaArguments:
    """Parse flags (parameter names with values, in order) and words. Raises UsageError."""
    typed = [(name, value) for name, value in flags if name.startswith("entity_")]
    if typed and any(name in _FLAGS or name in _DEFAULTS for name, _ in flags):
        raise click.UsageError("--entity-type and --user, --client, --ip are two styles: use one of them")
    collector = _ArgumentCollector()
    collector.read_types(typed)
    for name, value in flags:
        collector.read_flag(name, value)
    for word in words:
        collector.read_word(word)
    return QuotaArguments(collector.targets(), collector.added, tuple(collector.removed))


class _ArgumentCollector:
    """Collects parsed arguments."""

    def __init__(self) -> None:
        self.names: dict[str, list[Named]] = {"user": [], "client-id": [], "ip": []}
        self.added: dict[str, float] = {}
        self.removed: list[str] = []

    def targets(self) -> tuple[Mapping[str, Named], ...]:
        names = {dimension: given for dimension, given in self.names.items() if given}
        if "ip" in names and len(names) > 1:
            raise click.UsageError("ip cannot be combined with user or client-id in one quota entity")
        if not names:
            return ()
        return tuple(dict(zip(names, combined, strict=True)) for combined in product(*names.values()))

    def read_types(self, flags: Sequence[tuple[str, str]]) -> None:
        """Read ``--entity-type`` and the names that follow in order; types without a name match any."""
        types = [value for name, value in flags if name == "entity_type"]
        names = [(name, value) for name, value in flags if name != "entity_type"]
        if len(names) > len(types):
            raise click.UsageError("more names than types: give --entity-type before each --entity-name")
        for place, kind in enumerate(types):
            with _of("--entity-type"):
                if kind not in _TYPES:
                    raise InvalidValue(f"{kind!r} has no quotas", suggestion(kind, list(_TYPES)))
            if place >= len(names):
                self.names[_TYPES[kind]].append(Specified.ANY)
            elif names[place][0] == "entity_default":
                self.names[_TYPES[kind]].append(Default.DEFAULT)
            else:
                with _of("--entity-name"):
                    self.names[_TYPES[kind]].append(_name(_TYPES[kind], names[place][1], "--entity-default"))

    def read_flag(self, name: str, value: str) -> None:
        if name in _DEFAULTS:
            self.names[_DEFAULTS[name]].append(Default.DEFAULT)
        elif name in _FLAGS:
            with _of(f"--{name}"):
                self.names[_FLAGS[name]].append(_name(_FLAGS[name], value, f"--{name}-defaults"))
        elif name == "add_config":
            for key, text in _configs(value):
                self._add("--add-config", key, text)
        elif name == "delete_config":
            self.removed += (each.strip() for each in value.split(","))

    def read_word(self, word: str) -> None:
        """Parse one word of the short form."""
        key, equals, value = word.partition("=")
        shown = word if key in (*_KINDS, *_WORDS) and "=" not in value else without_secrets(key)[:_MOST_SHOWN]
        with _of(shown):
            if key in _KINDS:
                if equals:
                    self._add(shown, key, value)
                else:
                    self.removed.append(key)
            elif word in _DEFAULT_WORDS:
                self.names[_DEFAULT_WORDS[word]].append(Default.DEFAULT)
            elif key in _WORDS:
                dimension = {"user-group": "user", "client-id-prefix": "client-id"}.get(key, key)
                self.names[dimension].append(_short(key, value) if equals else _any(key))
            else:
                known = [*_WORDS, *_DEFAULT_WORDS, *_KINDS]
                raise InvalidValue(f"{key!r} is neither an entity nor a quota name", suggestion(key, known))

    def _add(self, flag: str, key: str, text: str) -> None:
        with _of(flag):
            if not _KEY.fullmatch(key) or not key:
                raise InvalidValue(
                    f"{key[:_MOST_SHOWN]!r} is not the name of a quota", f"known here: {', '.join(_KINDS)}"
                )
            if key in self.added:
                raise InvalidValue(f"{key} is given twice", "give it once")
            self.added[key] = limit(key, text)


def _name(dimension: str, name: str, default: str) -> str:
    """Return a valid name. Kafka's tool takes an empty name for the default: an unset variable would mean everybody."""
    if not name:
        raise InvalidValue("is empty", f"give a name, or {default} for the default")
    if any("\ud800" <= character <= "\udfff" for character in name):  # undecodable bytes of the command line
        raise InvalidValue("is not UTF-8", "type the name again")
    if dimension != "ip":
        return name
    try:
        return canonical_ip(name)
    except ValueError:
        raise InvalidValue(f"{name!r} is not an IP address", "host names are not resolved") from None


def _short(key: str, value: str) -> Named:
    if key in _TYPES.values() and value == Default.DEFAULT.value:
        return Default.DEFAULT
    default = f"{key}-default" if key in _TYPES.values() else "another word"
    name = _name(key, value, default)
    if key == "user-group":
        return Group(name)
    if key == "client-id-prefix":
        if len(name.encode()) > MAX_PREFIX_BYTES:
            raise InvalidValue("is too long for a prefix", f"{MAX_PREFIX_BYTES} bytes are the most")
        return Prefix(name)
    return name


def _any(key: str) -> Named:
    if key not in _TYPES.values():
        raise InvalidValue("has no name", f"write {key}=NAME")
    return Specified.ANY


def _configs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``k=v,k2=[v2]``."""
    for number, pair in enumerate(_COMMA.split(text) if "[" in text else text.split(","), 1):
        key, equals, value = pair.partition("=")
        with _of("--add-config"):
            if not equals:  # the part may belong to a secret
                said = repr(pair) if pair in _KINDS else f"part {number} of it"
                raise InvalidValue(f"{said} is no pair", "write it like producer_byte_rate=1MiB")
        yield key.strip(), re.sub(r"[\[\]]", "", value).strip()


def limit(key: str, text: str) -> float:
    """Parse a limit: a Java double, or a number with the units of a quota file. Raises InvalidValue."""
    if _DOUBLE.fullmatch(text):
        return float(text.replace("Infinity", "inf"))
    kind = _KINDS.get(key)
    if kind is None:  # an unknown key may come with a password: only the key is quoted
        credentials = "set credentials with kafka-configs, at the brokers" if key.startswith("SCRAM-") else ""
        raise InvalidValue(f"{key[:_MOST_SHOWN]} is no quota", credentials or f"known here: {', '.join(_KINDS)}")
    if any(sign in text for sign in ",=["):  # more than the value of a quota
        raise InvalidValue(f"{key}: is followed by more than a number", "write each pair as a word of its own")
    try:
        return float(_PARSERS[kind.row.written](text))
    except InvalidValue as invalid:
        raise InvalidValue(f"{key}: {invalid.message}", invalid.hint) from None


@contextmanager
def _of(flag: str) -> Iterator[None]:
    """Turn an InvalidValue raised inside into a UsageError that names the flag."""
    try:
        yield
    except InvalidValue as invalid:
        fix = f"; {invalid.hint}" if invalid.hint else ""
        raise click.UsageError(f"{flag}: {invalid.message}{fix}") from None


# ------------------------------------------------------------------------------------------------------------ options


class QuotaCommand(StoreCommand):
    """A command with ``entity_options``, and those for limits: its function is passed ``arguments``.

    Names belong to types by their order across options, which click keeps only within each option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        given = {name: iter(texts) for name, texts in values.items() if isinstance(texts, list | tuple)}
        flags = [
            (str(each.name), str(next(given.get(str(each.name), iter(())), "")))
            for each in order
            if each.name != "words"
        ]
        ctx.params["arguments"] = read(flags, [str(word) for word in given.get("words", ())])
        return rest


def _option(name: str, help_text: str, *more: str, metavar: str | None = None) -> Callable[[Command], Command]:
    if metavar is None:
        return click.option(name, *more, count=True, metavar="", help=help_text, expose_value=False)
    parameter = name.removeprefix("--").replace("-", "_")
    return click.option(name, *more, parameter, multiple=True, metavar=metavar, help=help_text, expose_value=False)


entity_options: Callable[[Command], Command] = with_options(
    click.argument("words", nargs=-1, metavar="[user=NAME] [client-id=NAME] [ip=ADDRESS] ...", expose_value=False),
    _option("--entity-type", "users, clients or ips; users and clients together are pairs.", metavar="TYPE"),
    _option("--entity-name", "The name for the type before it.", metavar="NAME"),
    _option("--entity-default", "The default entity of the type before it."),
    _option("--user", "A user: --entity-type users --entity-name NAME.", metavar="NAME"),
    _option("--user-defaults", "The default user."),
    _option("--client", "A client-id.", "--client-id", metavar="NAME"),
    _option("--client-defaults", "The default client-id."),
    _option("--ip", "An IP address.", metavar="ADDRESS"),
    _option("--ip-defaults", "The default of IP addresses."),
)
"""The options of a QuotaCommand that name entities."""
adding_option: Callable[[Command], Command] = _option(
    "--add-config", "Limits to set: producer_byte_rate=1MiB,request_percentage=50.", metavar="K=V,..."
)
removing_option: Callable[[Command], Command] = _option(
    "--delete-config", "Limits to remove: producer_byte_rate,request_percentage.", metavar="K,..."
)
