"""Writes ``proposed`` limits into the text of a quota file (docs/quotas.md)."""

from collections.abc import Mapping

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import number
from quotas.stores.layout import Parts, read_layout

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
        if (keys := layout.quotas.all[place].keys) is not None:
            text = _proposing(text, keys, all_of_it, newline=newline, as_json=layout.as_json)
    return text


def _proposing(text: str, keys: Parts, proposed: Mapping[QuotaKind, float], *, newline: str, as_json: bool) -> str:
    def key(name: str) -> str:
        return f'"{name}"' if as_json else name

    value = "{" + ", ".join(f"{key(kind.value)}: {number(limit)}" for kind, limit in proposed.items()) + "}"
    there = next((part for part in keys.all if part.key == _PROPOSED), None)
    if there is not None and text[there.value] == "{":
        return text[: there.value] + value + text[there.end :]
    if there is not None:  # on lines of its own, which begin behind the colon
        colon = text.index(":", there.start)
        return f"{text[: colon + 1]} {value}{text[there.end :]}"
    last = keys.all[-1].end
    if keys.is_flow:
        return f"{text[:last]}, {key(_PROPOSED)}: {value}{text[last:]}"
    if "\n" not in text[last - 1 :]:
        text += newline
    after = text.index("\n", last - 1) + 1
    return f"{text[:after]}{' ' * keys.column}{_PROPOSED}: {value}{newline}{text[after:]}"
