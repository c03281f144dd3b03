import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity.java_regex import compiled
from proxy.identity.mapping_rule import NoMatchingRule

# What Java 17's Pattern.matcher(text).matches() says, and its groups.
MATCHES: list[tuple[str, str, list[str | None] | None]] = [
    ("^CN=(.*?),OU=(.*?)$", "CN=a,OU=b", ["a", "b"]),
    ("CN=(?<user>[^,]+)(?:,.*)?", "CN=a,O=x", ["a"]),
    ("(a)|(b)", "b", [None, "b"]),
    ("(a|b)+", "ab", ["b"]),
    # line ends: . ends at five of them, $ stands before one at the end
    ("a.", "a\n", None),
    ("a.", "a\x85", None),
    ("a.", "a\u2028", None),
    ("a.", "a\x0b", []),
    ("(?s)a.", "a\n", []),
    ("a$\\n", "a\n", []),
    ("a$\\r\\n", "a\r\n", []),
    ("a\\r$\\n", "a\r\n", None),
    ("a\\Z\\x85", "a\x85", []),
    ("a\\z\\n", "a\n", None),
    ("\\Aa^b", "ab", None),
    # case: ASCII alone
    ("(?i)cn=k[a-z]+", "CN=KaZ", []),
    ("(?i)k", "\u212a", None),
    ("(?i)ü", "Ü", None),
    ("(?i:a)b", "AB", None),
    ("(?i)a(?-i:b)", "AB", None),
    ("(?i)a(?-i:b)", "Ab", []),
    ("(?i)[^a]", "A", None),
    ("(?i)[Z-a]", "z", []),
    # classes: ASCII alone
    ("\\w+", "aZ_9", []),
    ("\\w", "ü", None),
    ("\\d", "٣", None),
    ("\\s", "\x0b", []),
    ("\\s", "\x1c", None),
    ("[^\\W\\d]", "a", []),
    ("\\p{Punct}\\p{Alpha}\\p{XDigit}", "$zF", []),
    ("\\P{Upper}[^\\p{Space}]", "a\xa0", []),
    ("[a-][-a][.$^&]", "-a&", []),
    ("[^\\s\\S]?", "", []),
    # characters
    ("\\x41\\u00e9😀\\x07", "Aé😀\a", []),
    ("\\e\\a\\f\\t\\-\\/\\ü\\.", "\x1b\a\f\t-/ü.", []),
    ("\\Qa.b\\E+", "a.bb", []),
    ("\\Q(*", "(*", []),
    ("(?i)\\QaB\\E", "Ab", []),
    ("a}]", "a}]", []),
    # repetition
    ("a{2}b{1,}c{0,2}", "aabcc", []),
    ("a*+a", "aa", None),
    ("(?>a|ab)c", "abc", None),
    ("(a+?)(a*)", "aaa", ["a", "aa"]),
    ("(?:ab|a)?(b?)", "ab", [""]),
    ("(?:ab)*+a", "abab", None),
    ("(?:a|ab)++c", "abc", None),
    # words
    ("\\bCN=(\\w+)\\b.*", "CN=sr,O=x", ["sr"]),
    ("a\\B.\\b", "ab", []),
    ("\\B", "", []),
    ("a\\bb", "ab", None),
    # groups that neither the pattern nor a replacement refers to
    ("((?:[a-z]+-)*([a-z]+))@.*", "a-b@c", ["a-b", "b"]),
    ("(([a-z])+\\.)*", "ab.c.", ["c.", "c"]),
    ("(?=(a))a", "a", ["a"]),
    ("(?>x(a))", "xa", ["a"]),
    # around, and back
    ("a(?=b)b(?!c)(?<=ab)(?<!x)d", "abd", []),
    ("(?:(a)b)?a?c?", "ac", [None]),
]


@pytest.mark.parametrize(("pattern", "text", "groups"), MATCHES)
def test_accepted_patterns_give_the_groups_of_java(pattern: str, text: str, groups: list[str | None] | None) -> None:
    match = compiled(pattern).regex.fullmatch(text)
    assert (None if match is None else list(match.groups())) == groups


@pytest.mark.parametrize(
    ("pattern", "construct", "character"),
    [
        ("a\\G", "\\G", 2),
        ("\\R", "\\R", 1),
        ("\\X", "\\X", 1),
        ("\\h", "\\h", 1),
        ("[\\v]", "[\\v]", 1),
        ("[\\b]", "[\\b]", 1),
        ("\\N{DIGIT ONE}", "\\N", 1),
        ("\\cA", "\\c", 1),
        ("\\y", "\\y", 1),
        ("a\\", "\\", 2),
        ("\\x4", "\\x", 1),
        ("\\x{41}", "\\x", 1),
        ("\\0101", "\\0", 1),
        ("\\u12", "\\u", 1),
        ("\\uD83D", "\\u", 1),
        ("\\pL", "\\p", 1),
        ("a\\p{L}", "\\p{L}", 2),
        ("\\p{IsLatin}", "\\p{IsLatin}", 1),
        ("[\\p{IsLatin}]", "\\p{IsLatin}", 2),
        ("(?i)\\p{Lower}", "\\p{Lower}", 5),
        ("(?i)[\\p{Upper}]", "\\p{Upper}", 6),
        ("[\\P{Alpha}]", "[\\P{Alpha}]", 1),
        ("[a[b]]", "[a[b]", 1),
        ("[a&&b]", "[a&&b]", 1),
        ("[]a]", "[]", 1),
        ("[^]", "[^]", 1),
        ("[\\Qa\\E]", "[\\Qa\\E]", 1),
        ("[a", "[a", 1),
        ("[a-\\d]", "[a-\\d]", 1),
        ("[\\d-a]", "[\\d-a]", 1),
        ("[a-c-e]", "[a-c-e]", 1),
        ("[a--]", "[a--]", 1),
        ("(?m)a", "(?m)", 1),
        ("(?x: a)", "(?x:", 1),
        ("a(?i)b", "(?i)", 2),
        ("(?-U)a", "(?-U)", 1),
        ("(?P<n>a)", "(?P<n>a)", 1),
        ("(?#a)", "(?#a)", 1),
        ("(?<1>a)", "(?<1>a)", 1),
        ("(a)\\1", "\\1", 4),
        ("(?<n>a)\\k<n>", "\\k<n>", 8),
        ("*a", "*", 1),
        ("a|+", "+", 3),
        ("a{,2}", "{,2}", 2),
        ("a{99999}", "{99999}", 2),
        ("a**", "*", 3),
        ("a{1}{2}", "{2}", 5),
        ("^*", "*", 2),
        ("(?=a)+", "+", 6),
        ("(ab){2}+", "(", 1),
        ("(a*)*", "(", 1),
        ("(?:a|){2}", "(?:", 1),
        ("\\Q\\E", "\\Q", 1),
        ("(a", "(", 1),
        ("a)", ")", 2),
    ],
)
def test_unsupported_construct_is_refused_with_its_position(pattern: str, construct: str, character: int) -> None:
    with pytest.raises(InvalidValue) as raised:
        compiled(pattern)
    assert f": {construct}, at character {character} of " in raised.value.message
    assert "docs/security.md" in raised.value.hint


@pytest.mark.parametrize("pattern", ["a{2,1}", "[b-a]", "(?<n>a)(?<n>b)", "(" * 9_000 + "a" + ")" * 9_000])
def test_patterns_that_python_cannot_compile_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidValue, match=", in "):
        compiled(pattern)


def test_a_word_border_refuses_names_in_which_releases_of_java_differ() -> None:
    pattern = compiled("CN=\\b.*")
    assert pattern.matches("CN=sr")
    with pytest.raises(NoMatchingRule, match="depends on the release of Java"):
        pattern.matches("CN=jürgen")
    with pytest.raises(NoMatchingRule, match="depends on the release of Java"):
        list(compiled("\\B").found("ü"))


def test_a_look_behind_of_several_lengths_is_refused() -> None:
    with pytest.raises(InvalidValue, match="look-behind requires fixed-width pattern, in "):
        compiled("(?<=a|bc)d")


@given(st.text(st.sampled_from("ab.,(?<>:=!)[]^$-\\dwQEpk{1}*+|i&x"), max_size=16))
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    try:
        compiled(pattern)
    except InvalidValue as refused:
        assert "\n" not in refused.message  # noqa: PT017  either is right
