"""Writes ``proposed`` limits into the text of a quota file (docs/quotas.md)."""

from collections.abc import Mapping

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import number
from quotas.stores.layout import Item, read_layout

_PROPOSED = "proposed"
_PLAIN = Terms()


def with_proposals(text: str, policy: Policy, proposed: Mapping[Entity, Mapping[QuotaKind, float]]) -> str:
    """Return the text of a file of ``policy`` with proposed limits added; other proposals stay.

    The caller has to parse and compare the result, as with ``edited``.
    """
    places = {place: entity for place, entity in enumerate(policy.limits) if entity in proposed}
    layout = read_layout(text, places)
    newline = "\r\n" if "\r\n" in text else "\n"
    # From the end, so that earlier positions stay valid.
    for place, entity in sorted(places.items(), reverse=True):
        all_of_it = {**policy.terms.get(entity, _PLAIN).proposed, **proposed[entity]}
        text = _proposing(text, layout.items[place], all_of_it, newline=newline, as_json=layout.as_json)
    return text


def _proposing(text: str, item: Item, proposed: Mapping[QuotaKind, float], *, newline: str, as_json: bool) -> str:
    def key(name: str) -> str:
        return f'"{name}"' if as_json else name

    value = "{" + ", ".join(f"{key(kind.value)}: {number(limit)}" for kind, limit in proposed.items()) + "}"
    there = next((pair for pair in item.pairs if pair.key == _PROPOSED), None)
    if there is not None and text[there.value.start] == "{":
        return text[: there.value.start] + value + text[there.value.end :]
    if there is not None:  # on lines of its own, which begin behind the colon
        colon = text.index(":", there.start)
        return f"{text[: colon + 1]} {value}{text[there.end :]}"
    last = item.pairs[-1].end
    if item.in_braces:
        return f"{text[:last]}, {key(_PROPOSED)}: {value}{text[last:]}"
    if "\n" not in text[last - 1 :]:
        text += newline
    after = text.index("\n", last - 1) + 1
    return f"{text[:after]}{' ' * item.column}{_PROPOSED}: {value}{newline}{text[after:]}"
