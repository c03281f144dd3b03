"""GSSAPI (Kerberos 5), observed: a client's first token contains its ticket, which the service's key decrypts.

A copy of that token is passed to the Kerberos library as if it were the broker, and the library's answer is discarded;
docs/decisions/0010-gssapi.md explains why this yields what the broker reads, and nothing else. The name is a claim, as
with any mechanism: a stolen token shows it too, but its thief cannot complete the exchange with the broker.

Needs the extra ``kafka-sluice[gssapi]``, which is imported only if a keytab is configured.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from config.listener import Kerberos
from config.problems import InvalidValue
from proxy.identity.kerberos.keytab import principals
from proxy.identity.kerberos.name import parse_rules
from proxy.identity.kerberos.token import is_ap_req
from proxy.identity.mapping_rule import NoMatchingRule
from proxy.identity.mechanisms.mechanism import Claim

if TYPE_CHECKING:
    from gssapi.raw import GSSError

log = structlog.get_logger("sluice.gssapi")

_MAX_LOGGED: Final = 32
"""Limit of distinct reasons logged: some quote what a client has sent, so their number is unlimited."""
_MAX_REASON_CHARS: Final = 300

# RFC 4120 §7.5.9, as krb5 numbers its errors: the ticket is for another service, or for another version of its key.
_KRB5_ERRORS: Final = 2529638912
_NO_KEY: Final = frozenset(_KRB5_ERRORS + code for code in (35, 44, 45))


class UnreadableCause(StrEnum):
    """Why a client's first token yields no user."""

    NOT_KERBEROS = "not_kerberos"
    NO_KEY = "no_key"
    REFUSED = "refused"
    UNUSUAL_NAME = "unusual_name"
    NO_RULE = "no_rule"


class UnreadableToken(Exception):  # noqa: N818  it is what the token is
    """A token that yields no user; the text says why, and quotes at most names."""

    def __init__(self, cause: UnreadableCause, reason: str) -> None:
        super().__init__(reason[:_MAX_REASON_CHARS])
        self.cause = cause


@dataclass(eq=False)
class GssapiAcceptor:
    """Reads the first tokens of one listener's clients: the principal of an exchange is that of its first token, as for
    the broker. Later ones negotiate security layers, which Kafka does not use.
    """

    _keytab: Path
    _open_token: Callable[[bytes], bytes]
    """Returns a token's principal as krb5 writes it, or raises UnreadableToken."""
    _name_of: Callable[[str], str]
    """Returns the user for a principal, or raises NoMatchingRule."""
    unread: Counter[UnreadableCause] = field(default_factory=Counter)
    _logged: set[str] = field(default_factory=set)

    def __call__(self, token: bytes) -> Claim | None:
        """Return the user that a first token names; None if it names none: counted, and logged once a reason."""
        try:
            return Claim(self._read(token))
        except UnreadableToken as unreadable:
            self.unread[unreadable.cause] += 1
            self._log(unreadable.cause, str(unreadable))
            return None

    def _read(self, token: bytes) -> str:
        if not is_ap_req(token):
            raise UnreadableToken(UnreadableCause.NOT_KERBEROS, "the first token is not an AP-REQ of Kerberos 5")
        principal = _plain_text(self._open_token(token))
        try:
            return self._name_of(principal)
        except NoMatchingRule as error:
            raise UnreadableToken(UnreadableCause.NO_RULE, str(error)) from None

    def _log(self, cause: UnreadableCause, reason: str) -> None:
        if reason in self._logged or len(self._logged) == _MAX_LOGGED:
            return
        self._logged.add(reason)
        try:
            held = ", ".join(principals(self._keytab))
        except InvalidValue as invalid:
            held = invalid.message
        log.warning(
            "the user of a GSSAPI client cannot be read; it is counted as sluice:GSSAPI",
            cause=cause,
            reason=reason,
            keytab=str(self._keytab),
            keys_of=held,
        )


def acceptor(settings: Kerberos) -> GssapiAcceptor:
    """Return the acceptor of a listener. Raises InvalidValue if the keytab, the rules or the extra is unusable."""
    rules = parse_rules(settings.principal_to_local_rules, settings.default_realm)
    principals(settings.keytab)
    return GssapiAcceptor(settings.keytab, _opener(settings.keytab), rules.user)


def _plain_text(principal: bytes) -> str:
    """Return a principal that krb5 and Java write the same way: Java does not escape a slash within a component."""
    try:
        text = principal.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableToken(UnreadableCause.UNUSUAL_NAME, "a principal that is not UTF-8") from None
    if "\\" in text:
        raise UnreadableToken(UnreadableCause.UNUSUAL_NAME, f"a principal that must be escaped: {text}")
    return text


def _opener(keytab: Path) -> Callable[[bytes], bytes]:
    """Return what decrypts first tokens. krb5 rereads the keytab for each, contacts no server and writes nothing."""
    try:
        from gssapi import MechType, raw
    except ImportError as error:
        raise InvalidValue(
            f"GSSAPI cannot be read: {error}",
            "install the extra, kafka-sluice[gssapi], or leave out kerberos: its users are then sluice:GSSAPI",
        ) from None
    # No replay cache: the broker has one, and here it would be a file shared with other users of the machine.
    store = {b"keytab": b"FILE:" + bytes(keytab), b"rcache": b"none:"}
    try:
        held = raw.acquire_cred_from(store, mechs=[MechType.kerberos], usage="accept").creds
    except raw.GSSError as error:
        raise InvalidValue(
            f"{keytab} cannot be used: {_said(error)}", "compare it with what `klist -k` shows"
        ) from None

    def open_token(token: bytes) -> bytes:
        try:
            accepted = raw.accept_sec_context(token, held)
            name: bytes = raw.display_name(accepted.initiator_name, name_type=False).name
        except raw.GSSError as error:
            raise UnreadableToken(
                UnreadableCause.NO_KEY if error.min_code in _NO_KEY else UnreadableCause.REFUSED, _said(error)
            ) from None
        return name

    return open_token


def _said(error: "GSSError") -> str:
    """Return krb5's own message, which names the service and the key; for other errors, the full text."""
    if error.min_code < _KRB5_ERRORS:
        return str(error)
    return "; ".join(error.get_all_statuses(error.min_code, False))
