import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import InvalidValue
from proxy.identity.java.regex import compiled, translate

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
    ("(?s:a.)b.", "a\nb\n", None),
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
    ("a(?i)b|c", "C", []),
    ("(a(?i)b)c", "aBC", None),
    ("(?i)a(?-i)b", "AB", None),
    ("(?i:a)b", "AB", None),
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
    ("\\P{Upper}[\\P{Space}]", "a\xa0", []),
    ("[a-][-a][.$^&]", "-a&", []),
    ("[\\x00-\\x{10FFFF}]", "😀", []),
    ("[^\\s\\S]?", "", []),
    # characters
    ("\\x41\\u00e9\\x{1F600}\\0101\\07", "Aé😀A\a", []),
    ("\\0477", "'7", []),
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
    # around, and back
    ("a(?=b)b(?!c)(?<=ab)(?<!x)d", "abd", []),
    ("(.)\\1", "aa", ["a"]),
    ("(?<n>.)\\k<n>", "ab", None),
    ("(.)\\12", "aa2", ["a"]),
    ("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\\10\\110", "abcdefghijja10", list("abcdefghij")),
    ("(?:(a)b)?a?c?", "ac", [None]),
    ("(?:(a)|b)\\1", "b", None),
]


@pytest.mark.parametrize(("pattern", "text", "groups"), MATCHES)
def test_what_java_matches(pattern: str, text: str, groups: list[str | None] | None) -> None:
    match = compiled(pattern).fullmatch(text)
    assert (None if match is None else list(match.groups())) == groups


@pytest.mark.parametrize(
    ("pattern", "complaint", "character"),
    [
        ("a\\b", "\\b", 2),
        ("\\Ba", "\\B", 1),
        ("\\G", "\\G", 1),
        ("\\R", "\\R", 1),
        ("\\X", "\\X", 1),
        ("\\h", "\\h", 1),
        ("[\\v]", "\\v", 2),
        ("\\N{DIGIT ONE}", "\\N", 1),
        ("\\cA", "\\c", 1),
        ("\\y", "\\y", 1),
        ("a\\", "\\", 2),
        ("\\x4", "\\x", 1),
        ("\\08", "\\0", 1),
        ("\\u12", "\\u", 1),
        ("\\x{110000}", "a number that is no character", 1),
        ("\\uD83D", "a number that is no character", 1),
        ("\\pL", "\\p", 1),
        ("\\p{L}", "\\p{L}", 1),
        ("\\p{IsLatin}", "\\p{IsLatin}", 1),
        ("(?i)\\p{Lower}", "\\p{Lower} with (?i)", 5),
        ("[a[b]]", "in a class an unescaped", 3),
        ("[a&&b]", "in a class an unescaped", 3),
        ("[]a]", "in a class an unescaped", 2),
        ("[\\Qa\\E]", "\\Q", 2),
        ("[a", "a [ without its ]", 1),
        ("[", "the pattern ends too early", 2),
        ("[a-\\d]", "in a class a range that is none", 2),
        ("[b-a]", "in a class a range that is none", 2),
        ("[\\d-a]", "in a class a range that is none", 2),
        ("[a-c-e]", "in a class a - that is neither", 5),
        ("[a--]", "in a class a range that has no end", 2),
        ("(?m)a", "one of the flags m", 1),
        ("(?x: a)", "one of the flags x", 1),
        ("(?u)a", "one of the flags u", 1),
        ("(?d)a", "one of the flags d", 1),
        ("(?-U)a", "one of the flags -U", 1),
        ("(?P<n>a)", "an unknown kind of group", 1),
        ("(?#a)", "an unknown kind of group", 1),
        ("(?<1>a)", "an unknown kind of group", 1),
        ("(?<n>a)(?<n>b)", "a second group n", 8),
        ("(a\\1)", "a reference to a group that is not closed", 3),
        ("\\1(a)", "a reference to a group that is not closed", 1),
        ("\\k<n>", "a reference to a group that is not closed", 1),
        ("(?i)(a)\\1", "a reference to a group that is not closed", 8),
        ("*a", "a quantifier with nothing to repeat", 1),
        ("a|+", "a quantifier with nothing to repeat", 3),
        ("a{,2}", "a quantifier with nothing to repeat", 2),
        ("a{2,1}", "a quantifier that allows nothing", 1),
        ("a{9999999999}", "a quantifier that allows nothing", 1),
        ("a**", "a quantifier on a quantifier", 1),
        ("a{1}{2}", "a quantifier on a quantifier", 1),
        ("^*", "a quantifier on a quantifier, an anchor", 1),
        ("(?=a)+", "a quantifier on a quantifier, an anchor", 1),
        ("(?i)*", "a quantifier on a quantifier, an anchor", 1),
        ("(ab)*+", "a possessive quantifier on a group", 1),
        ("(a*)*", "a quantifier on a group that can match nothing", 1),
        ("(?:a|){2}", "a quantifier on a group that can match nothing", 1),
        ("((a)b)+", "a capturing group within a repeated group", 1),
        ("(?:(a)b){1}", "a capturing group within a repeated group", 1),
        ("(?=(a))", "a capturing group within a look-around", 4),
        ("(?!(?<n>a))", "a capturing group within a look-around", 4),
        ("(?>x(a))", "a capturing group within a look-around or (?>…)", 5),
        ("\\Q\\E", "an empty \\Q\\E", 1),
        ("(a", "a ( without its )", 1),
        ("a)", "a ) without its (", 2),
        ("(?:" * 51 + "a" + ")" * 51, "a group within 50 others", 151),
    ],
)
def test_what_is_refused_and_where(pattern: str, complaint: str, character: int) -> None:
    with pytest.raises(InvalidValue) as raised:
        translate(pattern)
    assert raised.value.message.startswith(complaint)
    assert f", at character {character} of " in raised.value.message


def test_a_look_behind_of_several_lengths_is_refused() -> None:
    with pytest.raises(InvalidValue, match="look-behind requires fixed-width pattern, in "):
        compiled("(?<=a|bc)d")


@given(st.text(st.sampled_from("ab.,(?<>:=!)[]^$-\\dwQEpk{1}*+|i&x"), max_size=16))
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    try:
        compiled(pattern)
    except InvalidValue as refused:
        assert "\n" not in refused.message  # noqa: PT017  either is right
