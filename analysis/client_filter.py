"""The argument of ``--client``: ``user=alice``, ``client-id=web``, ``user=alice,client-id=web`` or ``ip=10.0.0.5``."""

import ast
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from analysis.errors import AnalysisError
from quotas.names import configured_as

FORM: Final = (
    "write --client user=alice, client-id=web, user=alice,client-id=web or ip=10.0.0.5; quote a name that has "
    ",client-id= or quotes in it: user='a,client-id=b'; client-id='' is for clients that send none"
)
_COLUMNS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
_PART: Final = re.compile(
    r"\s*(user|client-id|ip)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^'\"].*?)\s*(?=,\s*(?:user|client-id|ip)=|$)",
    re.DOTALL,
)
_NOT_IN_A_PATH: Final = re.compile(r"[^A-Za-z0-9.-]")
_MOST_OF_A_PATH: Final = 60
_NEAREST: Final = 3
_COMPARED: Final = 20_000


@dataclass(frozen=True, slots=True)
class ClientFilter:
    """The names of a client, by columns of usage records."""

    names: Mapping[str, str]

    @property
    def is_address(self) -> bool:
        return "ip" in self.names

    def condition(self, prefix: str = "") -> str:
        """Return an SQL condition for the client's rows; ``prefix`` is that of the columns' names."""
        literals = {column: "'" + name.replace("'", "''") + "'" for column, name in self.names.items()}
        return " AND ".join(f'"{prefix}{column}" = {literal}' for column, literal in literals.items())

    def describe(self) -> str:
        """Return the text that ``parse`` reads."""
        parts = [f"{word}={_quoted(self.names[column])}" for word, column in _COLUMNS.items() if column in self.names]
        return ",".join(parts)

    def folder(self) -> str:
        """Return a directory name that is unique to the client."""
        text = self.describe()
        plain = _NOT_IN_A_PATH.sub("_", text.replace("=", "-"))[:_MOST_OF_A_PATH]
        return f"client={plain}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def parse(text: str) -> ClientFilter:
    """Read a filter. Raises AnalysisError with the syntax."""
    names: dict[str, str] = {}
    at = 0
    while True:
        part = _PART.match(text, at)
        if part is None or _COLUMNS[part[1]] in names:
            raise AnalysisError(f"--client {text!r} names no client: {FORM}")
        names[_COLUMNS[part[1]]] = _named(text, part[1], part[2])
        at = part.end()
        if at == len(text):
            break
        at += 1
    if "ip" in names and len(names) > 1:
        raise AnalysisError(f"--client {text!r}: an ip has no user and no client-id in records; {FORM}")
    return ClientFilter(names)


def _named(text: str, word: str, written: str) -> str:
    if written == "<default>":
        raise AnalysisError(f"--client {text!r}: {word}=<default> is a quota, and no client; {FORM}")
    try:
        name = str(ast.literal_eval(written)) if written[0] in "'\"" else written
    except (ValueError, SyntaxError):
        raise AnalysisError(f"--client {text!r}: {written} is quoted wrongly; {FORM}") from None
    if word == "ip":
        return _address(text, name)
    if not name and word == "user":
        raise AnalysisError(f"--client {text!r}: the user is empty; {FORM}")
    return configured_as(name)  # records have long names in their short form


def _address(text: str, name: str) -> str:
    from ipaddress import ip_address

    if name == "other":
        return name
    try:
        return str(ip_address(name))
    except ValueError:
        raise AnalysisError(f"--client {text!r}: {name!r} is no address; {FORM}") from None


def _quoted(name: str) -> str:
    """Return a name as ``parse`` reads it, quoted only if necessary."""
    plain = name.isprintable() and name == name.strip() and name != "<default>"
    if plain and name and name[0] not in "'\"" and not re.search(r",\s*(user|client-id|ip)=", name):
        return name
    return ascii(name)


def no_rows(client: ClientFilter, known: Mapping[str, Iterable[str]], period: str) -> AnalysisError:
    """Return the error for a client without rows; ``known`` has the names of other clients, by column."""
    said = []
    for column, name in client.names.items():
        others = sorted(known.get(column, ()))
        word = next(word for word, each in _COLUMNS.items() if each == column)
        if name in others:
            said.append(f"{word}={_quoted(name)} has rows, but not with the other name")
            continue
        near = difflib.get_close_matches(name, others[:_COMPARED], n=_NEAREST, cutoff=0.5)
        nearest = f"; the nearest: {', '.join(f'{word}={_quoted(each)}' for each in near)}" if near else ""
        said.append(f"{len(others):,} other{'s have' if len(others) != 1 else ' has'} a {word} in it{nearest}")
    return AnalysisError(f"no usage records of {client.describe()}{period}: {'; '.join(said)}")
