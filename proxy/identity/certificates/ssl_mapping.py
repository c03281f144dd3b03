r"""``ssl.principal.mapping.rules`` (KIP-371): maps a certificate's subject to a user, as ``SslPrincipalMapper``.

Rules are separated by commas. ``DEFAULT`` matches any subject and keeps it; ``RULE:pattern/replacement/``, with an
optional ``L`` or ``U``, applies if the pattern matches the whole subject. The first rule that matches decides. As in
Kafka, all matches within the subject are then replaced: ``RULE:(.*)/$1x/`` appends twice, the second time for the empty
match at the end.
"""

import re
from dataclasses import dataclass
from typing import Final

from config.problems import InvalidValue
from proxy.identity.java_regex import JavaPattern, Replacement, compiled, parse_replacement, replaced
from proxy.identity.mapping_rule import CASES, NoMatchingRule, naming_rule

# RULE_SPLITTER of SslPrincipalMapper. A dot in Java excludes more line terminators than in Python.
_DOT: Final = r"[^\n\r\x85\u2028\u2029]"
_TEXT: Final = rf"(?:\\{_DOT}|[^\\/])*"
_RULE: Final = re.compile(
    rf"\s*(?P<rule>(?P<default>DEFAULT)|RULE:(?P<pattern>{_TEXT})/(?P<to>{_TEXT})/(?P<case>[LU]?)(?P<more>{_DOT}*?)"
    rf"|{_DOT}*?)\s*(?:,\s*|\Z)",
    re.ASCII,
)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: JavaPattern
    replacement: Replacement
    case: str


@dataclass(frozen=True, slots=True)
class SslPrincipalMapper:
    """Maps the subjects of certificates to users by ``ssl.principal.mapping.rules``, as Kafka's class of this name."""

    _rules: tuple[_Rule | None, ...]
    """DEFAULT is None."""

    def user(self, name: str) -> str:
        """Return the user for a distinguished name in RFC 2253 form. Raises NoMatchingRule."""
        for rule in self._rules:
            if rule is None:
                return name
            if rule.pattern.matches(name):
                return CASES[rule.case](replaced(rule.pattern, rule.replacement, name))
        raise NoMatchingRule(name)


def texts(text: str) -> list[str]:
    """Return the rules in the setting, as they are written."""
    return [match["rule"] for match in _RULE.finditer(text.strip()) if match["rule"]]


def parse_rules(text: str) -> SslPrincipalMapper:
    """Parse the setting. Raises InvalidValue for rules that Kafka refuses, at startup or when they first match.

    An empty setting has no rule, and refuses every name.
    """
    rules: list[_Rule | None] = []
    at = 0
    text = text.strip()
    for match in _RULE.finditer(text):
        if match.start() != at:  # Kafka skips it silently
            raise InvalidValue(f"there is no comma behind {text[at : match.start()]!r}", "separate rules by commas")
        at = match.end()
        if match["default"] is not None:
            rules.append(None)
        elif match["pattern"] is not None and not match["more"]:
            with naming_rule(match["rule"]):
                rules.append(_rule(match["pattern"], match["to"], match["case"]))
        elif match["rule"]:
            raise InvalidValue(
                f"{match['rule']!r} is no rule", "write DEFAULT or RULE:pattern/replacement/ with L or U behind it"
            )
    return SslPrincipalMapper(tuple(rules))


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    java = compiled(pattern)
    return _Rule(java, parse_replacement(_literal_references(replacement, java.regex.groups), java), case)


def _literal_references(replacement: str, groups: int) -> str:
    r"""Put a backslash before each ``$n`` without a group, as ``escapeLiteralBackReferences`` does.

    Without any group nothing is escaped. The second and later references are looked for at their old offsets: the
    result is Kafka's, and usually an error.
    """
    if not groups:
        return replacement
    escaped = replacement
    for reference in _REFERENCE.finditer(replacement):
        digits = reference[1]
        number = int(digits[:11])
        if number > _MAX_INT:
            raise InvalidValue(f"${digits} is too large a number for a group")
        while number > groups and number >= 10:
            number //= 10
        if number > groups and not digits.startswith("0"):
            escaped = f"{escaped[: reference.start()]}\\{escaped[reference.start() :]}"
    return escaped
