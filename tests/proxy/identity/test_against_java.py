"""Names, patterns and rules made at random: Java and Kafka say the same of them as we do, or we refuse them."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity import java_regex
from proxy.identity.certificates import ssl_mapping
from proxy.identity.certificates.distinguished_name import rfc2253
from proxy.identity.kerberos import name as kerberos_name
from proxy.identity.mapping_rule import NoMatchingRule
from tests.harness.clients.java import OPTIONS
from tests.harness.examples import examples
from tests.harness.jars import NEWEST_BROKER, classpath
from tests.proxy.identity.certificates import attribute, certificate, name, tlv

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SOURCE = Path(__file__).with_name("Names.java")
many = examples(20)


class Java:
    """Names.java, asked a question at a time."""

    def __init__(self) -> None:
        command = ["java", *OPTIONS, "-Xss4m", "-cp", classpath(f"kafka-{NEWEST_BROKER}"), str(SOURCE)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def answers(self, what: str, *words: bytes | str) -> list[str | None] | None:
        """The words of the answer; in one, None is a group that is not set. None: it was refused."""
        encoded = (base64.b64encode(word.encode() if isinstance(word, str) else word).decode() for word in words)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join((what, *encoded)) + "\n")
        answer = self._process.stdout.readline().split()
        assert answer, "Names.java has ended"
        return None if answer == ["refused"] else [_decoded(word) for word in answer]


def _decoded(word: str) -> str | None:
    if word == "-":
        return None
    return base64.b64decode(word[1:]).decode() if word.startswith("=") else word


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with Java() as running:
        yield running


OIDS = ("550403", "550406", "550408", "55040a", "0992268993f22c640119", "550405", "2a864886f70d010901", "88378f01")
# Of other kinds of strings ASCII alone: beyond it, releases of Java differ.
VALUES = st.one_of(
    st.builds(tlv, st.just(0x0C), st.lists(st.sampled_from(b' \r\n\0,=+<>#;"\\a\xed\xa0\xf0\x9f\xc3\xbc')).map(bytes)),
    st.builds(tlv, st.sampled_from((0x13, 0x14, 0x16, 0x1B, 0x1C, 0x12, 0x04, 0x30)), st.sampled_from((b"", b"a =b "))),
)
PARTS = st.lists(st.builds(attribute, st.sampled_from(OIDS), VALUES), min_size=1, max_size=3)


@given(st.lists(PARTS, max_size=4).map(lambda parts: name(*parts)))
@many
def test_certificate_subjects_are_written_as_java_writes_them(java: Java, subject: bytes) -> None:
    assert java.answers("subject", subject) == [rfc2253(certificate(subject))]


CHARACTERS = [
    r"a",
    r"b",
    r",",
    r"=",
    r".",
    r"\w",
    r"\d",
    r"\s",
    r"[ab]",
    r"[^a,]",
    r"[a-c-]",
    r"\.",
    r"\x61",
    r"ü",
    r"\p{Upper}",
    r"\p{Alnum}",
    r"[\p{Punct}b]",
    r"\Qa.\E",
]
REPEATED = ["a*", "b+?", ".*", ".*?", "[^,]+", "a?+", "b{1,2}"]
LEAVES = st.sampled_from((*CHARACTERS, *REPEATED, *[r"^", r"$", r"\Z", r"\b", r"\B"], ""))
_PATTERNS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds(
            "{}{}){}".format,
            st.sampled_from(("(", "(?:", "(?>", "(?i:", "(?-i:", "(?<n>")),
            inner,
            st.sampled_from(("", "*", "+", "?", "*?", "++", "*+", "?+", "{1,2}")),
        ),
        st.builds("{}{})".format, st.sampled_from(("(?=", "(?!", "(?<=", "(?<!")), inner),
    ),
    max_leaves=6,
)
PATTERNS = st.builds("{}{}".format, st.sampled_from(("", "", "(?i)", "(?s)")), _PATTERNS)
TEXTS = st.text(st.sampled_from("abBA,=. \n\rü\u2028"), max_size=7)


@given(PATTERNS, TEXTS)
@many
def test_accepted_patterns_match_as_in_java(java: Java, pattern: str, text: str) -> None:
    try:
        compiled = java_regex.compiled(pattern)
    except InvalidValue:
        return
    try:
        expected: list[str | None] = ["true" if compiled.matches(text) else "false"]
        for match in compiled.found(text):
            expected += (str(match.start()), match[0], *match.groups())
    except NoMatchingRule:
        return
    answers = java.answers("find", pattern, text)
    assert answers is not None
    width = 2 + compiled.regex.groups
    for group in compiled.unsure:  # which no rule may refer to
        answers[2 + group :: width] = expected[2 + group :: width]
    assert answers == expected


# From documentation, questions and repositories; the first six were refused once.
IN_THE_WILD = [
    r"RULE:^.*\bCN=(\w+)\b.*$/$1/L",
    r"RULE:^CN=((?:[a-z0-9]+-)*([a-z0-9]+)),.*$/$1/",
    r"RULE:^(?:(OU=[^,]+|O=[^,]+),)*CN=([^,]+).*$/$2/",
    r"RULE:^CN=(([^.,]+)(\.[^.,]+)*),OU=.*$/$2/",
    r"RULE:^(?=.*\bOU=(ops|dev)\b).*CN=([a-zA-Z0-9.]+).*$/$2/",
    r"RULE:(?i)^cn=([\p{Alnum}._-]++),.*$/$1/L",
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    r"RULE:^CN=([^,]*),.*$/$1/,DEFAULT",
    r"RULE:.*CN=([^,]+)(,.*)?/$1/U",
    r"RULE:^CN=([a-z]+)\.([a-z]+\.)*example\.com(?:,.*)?$/$1/",
]
SUBJECTS = [
    "CN=sr,OU=ServiceUsers,O=Org,L=City,ST=State,C=DE",
    "CN=kafka-connect-01,OU=ops,O=Org",
    "OU=dev,O=Org,CN=app.team.one",
    "O=Org,OU=ops,CN=Admin,L=x",
    "cn=Shop_1,o=Org",
    "CN=kafka.prod.example.com,OU=dev,O=x",
    "CN=kafka.prod.example.com",
    "CN=,O=x",
    "CN=jürgen,OU=ops,O=x",
    "CN=a\\,b,OU=ServiceUsers",
]


@pytest.mark.parametrize("rules", IN_THE_WILD)
def test_rules_in_the_wild_are_taken_and_mean_the_same(java: Java, rules: str) -> None:
    parsed = ssl_mapping.parse_rules(rules)
    compared = 0
    for subject in SUBJECTS:
        try:
            expected = [parsed.user(subject)]
        except NoMatchingRule as error:
            if "release of Java" in str(error):
                continue
            expected = None
        assert java.answers("ssl", rules, subject) == expected
        compared += expected is not None
    assert compared


REPLACEMENTS = st.text(st.sampled_from("$\\123x{}-"), max_size=5)
CASES = st.sampled_from(("", "L", "U"))
SSL_RULES = st.lists(
    st.one_of(st.just("DEFAULT"), st.builds("RULE:{}/{}/{}".format, PATTERNS, REPLACEMENTS, CASES)), max_size=3
).map(",".join)


@given(SSL_RULES, TEXTS)
@many
def test_certificate_mapping_rules_give_the_user_kafka_gives(java: Java, rules: str, text: str) -> None:
    try:
        parsed = ssl_mapping.parse_rules(rules)
    except InvalidValue:
        return
    try:
        expected = [parsed.user(text)]
    except NoMatchingRule as error:
        if "release of Java" in str(error):
            return
        expected = None
    assert java.answers("ssl", rules, text) == expected


KERBEROS_RULES = st.builds(
    "RULE:[{}:{}]{}{}{}".format,
    st.sampled_from("12"),
    st.sampled_from(("$1", "$1@$0", "$2.$1", "x$0")),
    st.one_of(st.just(""), PATTERNS.map("({})".format)),
    st.one_of(st.just(""), st.builds("s/{}/{}/{}".format, PATTERNS, REPLACEMENTS, st.sampled_from(("", "g")))),
    st.sampled_from(("", "/L", "/U", "U")),
)


@given(KERBEROS_RULES, st.from_regex(r"\A[abA/]{1,4}(@[Rr])?\Z"))
@many
def test_kerberos_rules_give_the_user_kafka_gives(java: Java, rule: str, principal: str) -> None:
    try:
        parsed = kerberos_name.parse_rules([rule], "R")
    except InvalidValue:
        return
    try:
        expected = [parsed.user(principal)]
    except NoMatchingRule:
        expected = None
    assert java.answers("kerberos", rule, principal) == expected
