"""``sasl.jaas.config``: one login module and its options, as Kafka's JaasConfig reads them."""

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<sign>[=;])|(?P<word>[^\s=;"]+))""",
    re.DOTALL,
)
_EQUALS: Final = ("=", True)
_END: Final = (";", True)
_FLAGS: Final = frozenset(("required", "requisite", "sufficient", "optional"))


class LoginModule(NamedTuple):
    """A login module's class, without its package, and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Return the module and the options. Raises ValueError, which never quotes the text: it contains a password."""
    tokens = _tokens(text)
    words = [word for word, is_sign in tokens if not is_sign]
    if len(words) < 2 or words[1].lower() not in _FLAGS:
        raise ValueError("does not begin like `org.apache.kafka...LoginModule required`")
    if tokens[-1] != _END or _END in tokens[:-1]:
        raise ValueError("does not end with one `;`")
    written = tokens[2:-1]
    if len(written) % 3 or any(token != _EQUALS for token in written[1::3]):
        raise ValueError('has options that are not written as name="value"')
    names, values = written[::3], written[2::3]
    options = {name: value for (name, _), (value, _) in zip(names, values, strict=True)}
    return LoginModule(words[0].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the tokens as (text, is_sign); quoted text is never a sign."""
    tokens = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("has a quote that is not closed")
        at = found.end()
        if found["quoted"] is not None:
            tokens.append((re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.DOTALL), False))
        elif found["comment"] is None:
            tokens.append((found["sign"] or found["word"], found["sign"] is not None))
    return tokens
