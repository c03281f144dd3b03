"""The ``admin`` section: the HTTP port for operators, Prometheus and orchestrators, and who may use it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from config.forms import BindAddress, FilePath, Given, Host, Name, Section, Text, not_empty
from config.listener import ClientTls
from config.problems import InvalidValue, InvalidValues
from config.units import Address

OF_TOKEN_FILE: Final = "admin token"  # noqa: S105  a name for the log
"""The name of who has the token in ``admin.token_file``."""

May = Literal["read", "change"]


class AdminAccess(Section):
    """Who may use the admin port: whoever has a token, or a certificate."""

    name: Name = Field(description="The name, in the log and in `changes`.")
    token_file: FilePath | None = Field(
        None, description="A file with the token, of at least 16 bytes. It is read at each call."
    )
    subject: Text | None = Field(
        None,
        validate_default=True,
        description="Instead of a token: the name in a client's certificate, by `admin.tls.principal_mapping_rules`.",
    )
    may: Annotated[tuple[May, ...], not_empty("write [read], or [read, change]")] = Field(
        ("read", "change"),
        description="`change` allows to read, too. Once an entry has `read`, everything but `/livez` and `/readyz` "
        "needs a token.",
    )

    @field_validator("subject")
    @classmethod
    def _or_a_token(cls, subject: str | None, info: ValidationInfo) -> str | None:
        if "token_file" in info.data and (subject is None) == (info.data["token_file"] is None):
            said = "is missing" if subject is None else "cannot be combined with token_file"
            raise InvalidValue(said, "write either token_file, or subject: the name in a certificate")
        return subject


class Admin(Section):
    """The HTTP port with `/metrics`, `/livez` and `/readyz`."""

    bind: BindAddress = Field(
        Address("127.0.0.1", 9404),
        description="The listening address. Without `access`, only changes need authentication, so keep the port off "
        "the network.",
    )
    tls: Given[ClientTls] = None
    ca: FilePath | None = Field(
        None,
        description="PEM file of the authorities that verify the admin ports of other instances, if these have `tls`. "
        "Default: the system's.",
    )
    token_file: FilePath | None = Field(
        None,
        description="A file with the token for changes ([page.md](page.md)): short for one entry of `access`, "
        "`{name: admin token, may: [change]}`. Default: no changes are allowed but by `access`.",
    )
    access: tuple[AdminAccess, ...] = ()
    hosts: tuple[Host, ...] = Field(
        (),
        description="Values of the Host header that are accepted, besides IP addresses, `localhost`, the machine's own "
        "name and the hosts in `advertise`: a Prometheus that scrapes by another DNS name needs it here. `/livez` and "
        "`/readyz` accept any.",
    )

    @field_validator("ca")
    @classmethod
    def _with_tls(cls, ca: Path | None, info: ValidationInfo) -> Path | None:
        if ca is not None and "tls" in info.data and info.data["tls"] is None:
            raise InvalidValue("has no effect without tls", "all instances have tls at the admin port, or none")
        return ca

    @field_validator("access")
    @classmethod
    def _named_apart(cls, access: tuple[AdminAccess, ...], info: ValidationInfo) -> tuple[AdminAccess, ...]:
        tls = info.data.get("tls")
        wrong, names = InvalidValues(), {OF_TOKEN_FILE} if info.data.get("token_file") is not None else set()
        for index, each in enumerate(access):
            with wrong.at(index, "name"):
                if each.name in names:
                    raise InvalidValue(f"{each.name!r} is the name of another entry", "give each its own")
            names.add(each.name)
            with wrong.at(index, "subject"):
                if each.subject is not None and (tls is None or tls.client_authentication == "none"):
                    raise InvalidValue("needs clients that show a certificate", "see admin.tls.client_authentication")
        wrong.raise_if_any()
        return access

    @property
    def entries(self) -> tuple[AdminAccess, ...]:
        """Everybody who may do anything, whoever has the token of ``token_file`` included."""
        return (*_of_token_file(self.token_file), *self.access)

    @property
    def is_closed(self) -> bool:
        """Whether reading needs an entry, too."""
        return any("read" in each.may for each in self.access)


def _of_token_file(token_file: Path | None) -> Iterator[AdminAccess]:
    if token_file is not None:
        yield AdminAccess(name=OF_TOKEN_FILE, token_file=token_file, may=("change",))
