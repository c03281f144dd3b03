"""The groups of users that a quota file defines."""

from config.document import Document
from config.nodes import Mapping, Node, Scalar, Sequence
from config.problems import InvalidValue, InvalidValues, Steps, suggestion
from config.units import parse_name
from quotas.entities import Group
from quotas.names import configured_as
from quotas.stores import likely_mistakes


class Groups:
    """Reads the groups; adds errors to ``wrong`` and warnings to ``mistakes``."""

    def __init__(self, document: Document, wrong: InvalidValues, mistakes: likely_mistakes.Mistakes) -> None:
        self._document = document
        self._wrong = wrong
        self._mistakes = mistakes
        self.users: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, tuple[str, Steps]] = {}
        """The group of each user, and its place."""

    def read(self, written: Node) -> None:
        """Read the section ``groups``."""
        if not isinstance(written, Mapping):
            self._wrong.add(("groups",), "must be groups and their users", "write them like {analytics: [alice, bob]}")
            return
        for name, users in written.items():
            at: Steps = ("groups", name)
            self.users[name] = ()
            if not isinstance(users, Sequence) or not users:
                self._wrong.add(at, "must be a list of users", "write it like [alice, bob]")
                continue
            for index, user in enumerate(users):
                with self._wrong.at(*at, index):
                    self._add(name, user, (*at, index))

    def _add(self, group: str, written: Node, at: Steps) -> None:
        if not isinstance(written, Scalar):
            raise InvalidValue("must be a user", "write a name")
        user = parse_name(written)
        self._mistakes.add(at, likely_mistakes.of_name("user", user))
        other, where = self._places.setdefault(configured_as(user), (group, at))
        if where != at:
            first = self._document.problem(where, InvalidValue(""))
            raise InvalidValue(
                f"{user!r} is in the group {other!r} already, on line {first.line}", "leave it in one of them"
            )
        self.users[group] += (user,)

    def named(self, written: Node) -> Group:
        """Return the group that a quota names."""
        if not isinstance(written, Scalar):
            raise InvalidValue("must be the name of a group", "write it like {user-group: analytics}")
        if written not in self.users:
            hint = suggestion(written, list(self.users)) if self.users else "define it: groups: {NAME: [alice, bob]}"
            raise InvalidValue(f"no group is called {written!r}", hint)
        return Group(str(written))
