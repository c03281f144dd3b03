"""``sasl.kerberos.principal.to.local.rules``: maps a Kerberos principal to a user, as ``KerberosShortNamer``.

A principal is ``first[/second]@REALM``. ``DEFAULT`` returns the first component if the realm is the default realm.
``RULE:[n:format](match)s/from/to/g``, with an optional ``/L`` or ``/U``, applies to principals of n components. In the
format ``$0`` is the realm and ``$1`` the first component; ``match`` has to match the whole result; then ``from`` is
replaced, with ``g`` everywhere. The first rule that applies decides. A result with ``/`` or ``@`` in it refuses the
principal.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.problems import InvalidValue
from proxy.identity.java_regex import JavaPattern, Replacement, compiled, parse_replacement, replaced
from proxy.identity.mapping_rule import CASES, NoMatchingRule, naming_rule

_PRINCIPAL: Final = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE: Final = re.compile(
    r"DEFAULT|RULE:\[(?P<components>[0-9]{0,9}):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<everywhere>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")


@dataclass(frozen=True, slots=True)
class _Rule:
    components: int
    format: tuple[str | int, ...]
    """Literal text, or the number of a component; 0 is the realm."""
    match: JavaPattern | None
    substitution: tuple[JavaPattern, Replacement] | None
    everywhere: bool
    case: str

    def user(self, parts: Sequence[str]) -> str | None:
        """Return the user for realm and components, None if the rule does not apply."""
        if len(parts) - 1 != self.components:
            return None
        name = "".join(part if isinstance(part, str) else parts[part] for part in self.format)
        if self.match is not None and not self.match.matches(name):
            return None
        if self.substitution is not None:
            name = replaced(*self.substitution, name, everywhere=self.everywhere)
        if "/" in name or "@" in name:
            raise NoMatchingRule(name, "a rule left / or @ in it")
        return CASES[self.case](name)


@dataclass(frozen=True, slots=True)
class KerberosShortNamer:
    """Maps principals to users by ``sasl.kerberos.principal.to.local.rules``, as Kafka's class of this name."""

    _rules: tuple[_Rule | None, ...]
    """DEFAULT is None."""
    _default_realm: str

    def user(self, principal: str) -> str:
        """Return the user for a principal; one without a realm is the user itself. Raises NoMatchingRule."""
        if "@" not in principal:
            return principal
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            raise NoMatchingRule(principal, "no name of one or two components and a realm")
        parts = [part for part in match.group("realm", "first", "second") if part is not None]
        for rule in self._rules:
            if rule is None and parts[0] == self._default_realm:
                return parts[1]
            if rule is not None and (user := rule.user(parts)) is not None:
                return user
        raise NoMatchingRule(principal)


def parse_rules(rules: Sequence[str], default_realm: str) -> KerberosShortNamer:
    """Parse the rules. Raises InvalidValue for rules that Kafka refuses, at startup or when they are applied.

    Kafka falls back to DEFAULT if the setting is absent; here, no rules refuse every principal with a realm.
    """
    return KerberosShortNamer(tuple(map(_rule, rules)), default_realm)


def _rule(text: str) -> _Rule | None:
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidValue(f"{text!r} is no rule", "write DEFAULT or RULE:[n:format](match)s/from/to/g, and /L or /U")
    if match["format"] is None:
        return None
    with naming_rule(text):
        if not match["components"]:
            raise InvalidValue("says not for how many components it is", "write [1:…] or [2:…]")
        components = int(match["components"])
        return _Rule(
            components,
            _format(match["format"], components),
            None if match["match"] is None else compiled(match["match"]),
            None if match["from"] is None else (of := compiled(match["from"]), parse_replacement(match["to"], of)),
            match["everywhere"] is not None,
            match["case"] or "",
        )


def _format(text: str, components: int) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    at = 0
    for parameter in _PARAMETER.finditer(text):
        number = int(parameter[1]) if 0 < len(parameter[1]) < 10 else components + 1
        if number > components:
            raise InvalidValue(f"{parameter[0]} in the format is none of its components", f"$0 to ${components} are")
        parts += (text[at : parameter.start()], number)
        at = parameter.end()
    return (*parts, text[at:])
