"""Command-line options that name entities and limits, parsed by ``proxy.manage.grammar``."""

from collections.abc import Callable

import click

from proxy.manage.grammar import read
from proxy.manage.options import Command, with_options


class QuotaCommand(click.Command):
    """A command with ``entity_options`` (and ``limit_options``): its function is passed ``arguments``.

    Names belong to types by their order across options, which click keeps only within each option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        given = {name: iter(texts) for name, texts in values.items() if isinstance(texts, list | tuple)}
        flags = [
            (str(each.name), str(next(given.get(str(each.name), iter(())), "")))
            for each in order
            if each.name != "words"
        ]
        ctx.params["arguments"] = read(flags, [str(word) for word in given.get("words", ())])
        return rest


def entity_options(command: Command) -> Command:
    """Add the options that name entities to a QuotaCommand."""
    return with_options(
        command,
        click.argument("words", nargs=-1, metavar="[user=NAME] [client-id=NAME] [ip=ADDRESS] ...", expose_value=False),
        _option("--entity-type", "users, clients or ips; users and clients together are pairs.", metavar="TYPE"),
        _option("--entity-name", "The name for the type before it.", metavar="NAME"),
        _option("--entity-default", "The default entity of the type before it."),
        _option("--user", "A user: --entity-type users --entity-name NAME.", metavar="NAME"),
        _option("--user-defaults", "The default user."),
        _option("--client", "A client-id.", "--client-id", metavar="NAME"),
        _option("--client-defaults", "The default client-id."),
        _option("--ip", "An IP address.", metavar="ADDRESS"),
        _option("--ip-defaults", "The default of IP addresses."),
    )


def limit_options(command: Command) -> Command:
    """Add the options for limits to set and to remove to a QuotaCommand."""
    return with_options(
        command,
        _option("--add-config", "Limits to set: producer_byte_rate=1MiB,request_percentage=50.", metavar="K=V,..."),
        removal_option,
    )


def removal_option(command: Command) -> Command:
    """Add the option for limits to remove to a QuotaCommand."""
    return _option("--delete-config", "Limits to remove: producer_byte_rate,request_percentage.", metavar="K,...")(
        command
    )


def _option(name: str, help_text: str, *more: str, metavar: str | None = None) -> Callable[[Command], Command]:
    if metavar is None:
        return click.option(name, *more, count=True, metavar="", help=help_text, expose_value=False)
    parameter = name.removeprefix("--").replace("-", "_")
    return click.option(name, *more, parameter, multiple=True, metavar=metavar, help=help_text, expose_value=False)
