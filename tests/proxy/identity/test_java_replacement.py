import pytest

from config.problems import InvalidValue
from proxy.identity.java_regex import compiled, parse_replacement
from proxy.identity.java_regex import replaced as replaced_by


def replaced(pattern: str, replacement: str, text: str) -> tuple[str, str]:
    java = compiled(pattern)
    parsed = parse_replacement(replacement, java)
    return replaced_by(java, parsed, text), replaced_by(java, parsed, text, everywhere=False)


# What Java 17's replaceAll and replaceFirst give.
@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "everywhere", "first"),
    [
        ("(a)", "<$1>", "aba", "<a>b<a>", "<a>ba"),
        ("(a)", "$0$0", "ab", "aab", "aab"),
        ("(a)", "$12", "a", "a2", "a2"),
        ("(a)", "$01", "a", "a", "a"),
        ("(?<n>a)", "${n}-", "a", "a-", "a-"),
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
def test_replacements_give_the_text_of_java(
    pattern: str, replacement: str, text: str, everywhere: str, first: str
) -> None:
    assert replaced(pattern, replacement, text) == (everywhere, first)


@pytest.mark.parametrize(
    ("replacement", "complaint"),
    [
        ("$2", r"\$2 in '\$2': the pattern has no such group"),
        ("a$", r"a \$ that means nothing, at character 2 of 'a\$'"),
        ("$x", r"a \$ that means nothing, at character 1"),
        ("${}", r"a \$ that means nothing, at character 1"),
        ("${1}", r"a \$ that means nothing, at character 1"),
        ("${n}", r"\$\{n\} in '\$\{n\}': the pattern has no such group"),
        ("a\\", r"a \\ that means nothing, at character 2"),
    ],
)
def test_invalid_replacement_is_refused_with_its_position(replacement: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{complaint}"):
        parse_replacement(replacement, compiled("(a)"))


@pytest.mark.parametrize("pattern", ["(?:(a)b)+", "(?=(a))a", "(?>(a))", "(a)*+", "(?:x|(?:(a)|b)*c)"])
def test_reference_to_group_within_repeated_group_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidValue, match=r"^\$1 in 'x\$1': a group within a repeated group") as raised:
        parse_replacement("x$1", compiled(pattern))
    assert raised.value.hint.endswith("refer to a group around it")
