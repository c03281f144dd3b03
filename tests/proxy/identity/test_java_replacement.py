import re

import pytest

from config.problems import InvalidValue
from proxy.identity.java.replacement import parse_replacement, replace_all, replace_first


def replaced(pattern: str, replacement: str, text: str) -> tuple[str, str]:
    compiled = re.compile(pattern)
    parsed = parse_replacement(replacement, compiled)
    return replace_all(compiled, parsed, text), replace_first(compiled, parsed, text)


# What Java 17's replaceAll and replaceFirst give.
@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "everywhere", "first"),
    [
        ("(a)", "<$1>", "aba", "<a>b<a>", "<a>ba"),
        ("(a)", "$0$0", "ab", "aab", "aab"),
        ("(a)", "$12", "a", "a2", "a2"),
        ("(a)", "$01", "a", "a", "a"),
        ("(?P<n>a)", "${n}-", "a", "a-", "a-"),
        ("(a)|b", "<$1>", "b", "<>", "<>"),
        ("a", "\\$1\\\\\\x", "a", "$1\\x", "$1\\x"),
        ("a", "\\\n", "a", "\n", "\n"),
        ("(.*)", "$1x", "abc", "abcxx", "abcx"),
        ("x*", "-", "xay", "--a-y-", "-ay"),
        ("|a", "X", "ab", "XaXbX", "Xab"),
        ("z", "$0", "ab", "ab", "ab"),
        ("^a", "", "aa", "a", "a"),
        ("", "-", "", "-", "-"),
    ],
)
def test_what_java_replaces(pattern: str, replacement: str, text: str, everywhere: str, first: str) -> None:
    assert replaced(pattern, replacement, text) == (everywhere, first)


@pytest.mark.parametrize(
    ("replacement", "complaint"),
    [
        ("$2", r"\$2 in '\$2', and the pattern has 1 groups"),
        ("a$", r"a \$ that means nothing, at character 2 of 'a\$'"),
        ("$x", r"a \$ that means nothing, at character 1"),
        ("${}", r"a \$ that means nothing, at character 1"),
        ("${1}", r"a \$ that means nothing, at character 1"),
        ("${n}", r"\$\{n\} in '\$\{n\}', and the pattern has no such group"),
        ("a\\", r"a \\ that means nothing, at character 2"),
    ],
)
def test_what_is_refused(replacement: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{complaint}"):
        parse_replacement(replacement, re.compile("(a)"))
