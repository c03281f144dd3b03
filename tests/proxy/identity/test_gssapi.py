"""What is made of the principal in a client's first token; the real tokens are in tests/integration/test_gssapi.py."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from config.listener import Kerberos
from config.problems import InvalidValue
from proxy.identity.kerberos.gssapi import GssapiAcceptor, UnreadableCause, UnreadableToken, acceptor
from proxy.identity.kerberos.name import parse_rules
from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.registry import Mechanisms
from tests.proxy.identity.kerberos import ap_req, keytab

TOKEN = ap_req()
REALM = "EXAMPLE.COM"


@pytest.fixture
def logged() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


class Library:
    """Stands in for krb5: it opens every token, and finds `principal` there or raises it."""

    def __init__(self, principal: bytes | UnreadableToken) -> None:
        self.principal = principal
        self.opened: list[bytes] = []

    def __call__(self, token: bytes) -> bytes:
        self.opened.append(token)
        if isinstance(self.principal, UnreadableToken):
            raise self.principal
        return self.principal


def begin(accept: GssapiAcceptor) -> Mechanism:
    exchange = Mechanisms(gssapi=accept).begin("GSSAPI")
    assert exchange is not None
    return exchange


def accepting(library: Library, folder: Path, *rules: str) -> GssapiAcceptor:
    path = folder / "kafka.keytab"
    path.write_bytes(keytab("kafka/b1@EXAMPLE.COM", "kafka/b2@EXAMPLE.COM"))
    return GssapiAcceptor(path, library, parse_rules(rules or ("DEFAULT",), REALM).user)


def test_principal_of_the_first_token_is_the_claim(tmp_path: Path) -> None:
    exchange = begin(accepting(Library(b"alice@EXAMPLE.COM"), tmp_path))
    assert exchange.claim is None
    exchange.from_client(TOKEN)
    assert exchange.claim == Claim("alice")


def test_rules_name_the_user(tmp_path: Path) -> None:
    exchange = begin(accepting(Library(b"svc/h1@OTHER.COM"), tmp_path, "RULE:[2:$1-$0](.*)s/OTHER.COM/o/", "DEFAULT"))
    exchange.from_client(TOKEN)
    assert exchange.claim == Claim("svc-o")


def test_only_the_first_token_is_read(tmp_path: Path) -> None:
    """What comes later is about layers of security. It names an authorization id, which the broker does not look at."""
    library = Library(b"alice@EXAMPLE.COM")
    exchange = begin(accepting(library, tmp_path))
    exchange.from_client(TOKEN)
    library.principal = b"admin@EXAMPLE.COM"
    exchange.from_client(TOKEN)
    assert exchange.claim == Claim("alice")
    assert library.opened == [TOKEN]


def test_first_token_that_is_unreadable_is_not_made_good_by_the_next(tmp_path: Path) -> None:
    exchange = begin(accepting(Library(b"alice@EXAMPLE.COM"), tmp_path))
    exchange.from_client(b"")
    exchange.from_client(TOKEN)
    assert exchange.claim is None


def test_token_of_another_form_never_reaches_the_library(tmp_path: Path) -> None:
    library = Library(b"alice@EXAMPLE.COM")
    accept = accepting(library, tmp_path)
    for token in (b"", TOKEN + TOKEN, TOKEN[2:], b"n,,n=alice,r=x"):
        begin(accept).from_client(token)
    assert library.opened == []
    assert accept.unread == {UnreadableCause.NOT_KERBEROS: 4}


@pytest.mark.parametrize(
    ("principal", "cause"),
    [
        (b"bob@OTHER.COM", UnreadableCause.NO_RULE),
        (b"a/b/c@EXAMPLE.COM", UnreadableCause.NO_RULE),
        # Java calls the first `admin/x@EXAMPLE.COM`, and thereby its user `admin`.
        (b"admin\\/x@EXAMPLE.COM", UnreadableCause.UNUSUAL_NAME),
        (b"admin\\@x@EXAMPLE.COM", UnreadableCause.UNUSUAL_NAME),
        (b"admin\\0@EXAMPLE.COM", UnreadableCause.UNUSUAL_NAME),
        (b"\xff\xfe@EXAMPLE.COM", UnreadableCause.UNUSUAL_NAME),
    ],
)
def test_principal_without_a_certain_user_claims_nothing(
    tmp_path: Path, principal: bytes, cause: UnreadableCause
) -> None:
    accept = accepting(Library(principal), tmp_path)
    exchange = begin(accept)
    exchange.from_client(TOKEN)
    assert exchange.claim is None
    assert accept.unread == {cause: 1}


def test_token_refused_by_krb5_is_counted_and_logged_once(
    tmp_path: Path, logged: list[structlog.typing.EventDict]
) -> None:
    refusal = UnreadableToken(UnreadableCause.NO_KEY, "Request ticket server kafka/b3@EXAMPLE.COM not found in keytab")
    accept = accepting(Library(refusal), tmp_path)
    for _ in range(3):
        exchange = begin(accept)
        exchange.from_client(TOKEN)
        assert exchange.claim is None
    assert accept.unread == {UnreadableCause.NO_KEY: 3}
    (event,) = logged
    assert event["cause"] == "no_key"
    assert "kafka/b3@EXAMPLE.COM" in event["reason"]
    assert event["keys_of"] == "kafka/b1@EXAMPLE.COM, kafka/b2@EXAMPLE.COM"


def test_reasons_without_end_do_not_fill_the_log(tmp_path: Path, logged: list[structlog.typing.EventDict]) -> None:
    library = Library(b"")
    accept = accepting(library, tmp_path)
    for number in range(100):
        library.principal = UnreadableToken(UnreadableCause.REFUSED, f"{number}" * 1000)
        begin(accept).from_client(TOKEN)
    assert accept.unread == {UnreadableCause.REFUSED: 100}
    assert len(logged) == 32
    assert max(len(event["reason"]) for event in logged) == 300


def test_lost_keytab_is_said(tmp_path: Path, logged: list[structlog.typing.EventDict]) -> None:
    accept = accepting(Library(UnreadableToken(UnreadableCause.NO_KEY, "Key table file not found")), tmp_path)
    (tmp_path / "kafka.keytab").unlink()
    begin(accept).from_client(TOKEN)
    assert "cannot be read: No such file" in logged[0]["keys_of"]


@pytest.mark.parametrize(
    ("answers", "succeeded"),
    [
        ([b"\x60AP-REP", b"layers", b""], [False, False, True]),
        ([b"layers", b""], [False, True]),
        ([b"\x60AP-REP", b"layers", b"end"], [False, False, True]),
    ],
)
def test_gssapi_exchange_succeeds_at_empty_or_third_answer(
    tmp_path: Path, answers: list[bytes], succeeded: list[bool]
) -> None:
    exchange = begin(accepting(Library(b"alice@EXAMPLE.COM"), tmp_path))
    assert [exchange.from_broker(answer) for answer in answers] == succeeded


def test_repr_shows_no_token(tmp_path: Path) -> None:
    exchange = begin(accepting(Library(b"alice@EXAMPLE.COM"), tmp_path))
    exchange.from_client(TOKEN)
    assert not hasattr(exchange, "__dict__")
    assert "sealed" not in repr(exchange)


# ------------------------------------------------------------------------------------------------------- at the start


def settings(path: Path, *rules: str) -> Kerberos:
    return Kerberos(keytab=path, default_realm=REALM, principal_to_local_rules=rules or ("DEFAULT",))


def test_keytab_is_looked_at_when_the_proxy_starts(tmp_path: Path) -> None:
    path = tmp_path / "kafka.keytab"
    with pytest.raises(InvalidValue, match=r"kafka\.keytab cannot be read: No such file"):
        acceptor(settings(path))
    path.write_bytes(keytab())
    with pytest.raises(InvalidValue, match=r"kafka\.keytab holds no key"):
        acceptor(settings(path))


def test_rules_are_looked_at_when_the_proxy_starts(tmp_path: Path) -> None:
    path = tmp_path / "kafka.keytab"
    path.write_bytes(keytab("kafka/b1@EXAMPLE.COM"))
    with pytest.raises(ValueError, match=r"RULE:"):
        acceptor(settings(path, "RULE:[x]"))


def test_extra_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kafka.keytab"
    path.write_bytes(keytab("kafka/b1@EXAMPLE.COM"))
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidValue) as raised:
        acceptor(settings(path))
    assert "kafka-sluice[gssapi]" in raised.value.hint
