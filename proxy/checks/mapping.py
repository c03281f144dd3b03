"""Checks of mapping rules by ``sluice check``: example results, and doubled backslashes."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from config.problems import InvalidValue, Steps
from config.settings import Listener
from proxy.checks.findings import Findings
from proxy.identity.certificates import ssl_mapping
from proxy.identity.kerberos import name as kerberos_name
from proxy.identity.mapping_rule import NoMatchingRule
from proxy.identity.principal import confirmed

_SUBJECTS: Final = (
    "CN=sr,OU=Team,O=Example,L=Berlin,ST=Berlin,C=DE",
    "CN=sr,OU=Team,O=Example,C=DE",
    "CN=sr.example.com,OU=Team,O=Example,C=DE",
    "CN=sr",
)
_MOST_NAME_CHARS: Final = 100
_DOUBLED: Final = re.compile(r"\\\\[A-Za-z]")

User = Callable[[str], str]
"""Maps a name to a user. Raises NoMatchingRule."""


def made_of_examples(listener: Listener, names: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each rule with its result for the first name that it matches. ``names`` replace the examples.

    Invalid rules are skipped: they are reported as problems.
    """
    if listener.tls is not None and listener.tls.principal_mapping_rules != "DEFAULT":
        for rule in ssl_mapping.texts(listener.tls.principal_mapping_rules):
            yield from _line(listener.name, rule, lambda text: ssl_mapping.parse_rules(text).user, names or _SUBJECTS)
    kerberos = listener.sasl.kerberos
    if kerberos is not None and kerberos.principal_to_local_rules != ("DEFAULT",):
        realm = kerberos.default_realm
        principals = [f"{name}@{of}" for of in (realm, "OTHER.REALM") for name in ("sr", "sr/kafka.example.com")]
        tried = names or principals
        for rule in kerberos.principal_to_local_rules:
            yield from _line(listener.name, rule, lambda text: kerberos_name.parse_rules([text], realm).user, tried)


def _line(listener: str, rule: str, parse: Callable[[str], User], names: Sequence[str]) -> Iterator[str]:
    try:
        user_of = parse(rule)
    except InvalidValue:
        return
    for name in names:
        try:
            user = user_of(name)
        except NoMatchingRule:
            continue
        counted = "" if confirmed(user) == user else f", counted as {confirmed(user)}"
        yield f"listener {listener}: {rule} makes {user!r} of {name!r}{counted}"
        return
    tried = " nor ".join(repr(name[:_MOST_NAME_CHARS]) for name in names)
    takes = f"does not match {tried}" if len(names) == 1 else f"matches neither {tried}"
    yield f"listener {listener}: {rule} {takes}; try other names with --name"


def look_for_doubled(found: Findings, at: Steps, rules: str) -> None:
    """Warn of a doubled backslash, as in a ``.properties`` file, which removes one of them."""
    doubled = _DOUBLED.search(rules)
    if doubled is None:
        return
    begin, end = max(doubled.start() - 10, 0), doubled.end() + 10
    around = f"{'…' if begin else ''}{rules[begin:end]}{'…' if end < len(rules) else ''}"
    message = f"{doubled[0]} in {around} is a backslash and the letter {doubled[0][-1]}"
    hint = f"a .properties file removes one of two backslashes, YAML in single quotes does not: write {doubled[0][1:]}"
    found.warn(at, message, hint)
