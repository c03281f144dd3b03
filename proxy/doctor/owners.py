"""Compares the owners of brokers as each instance of a group knows them (``/api/v1/owners`` of its admin port)."""

import ssl
from typing import Any

from config.units import parse_reachable
from proxy.checks.health import AdminLogin, state_of
from proxy.doctor.findings import DoctorFindings
from proxy.owners.membership import MemberState


async def look_at_owners(
    found: DoctorFindings, admin: str, login: AdminLogin, of_others: ssl.SSLContext | None = None
) -> None:
    """Ask the instance at an admin port, and each other one that it knows, and say where they differ."""
    first = await _owners_at(admin, login)
    if isinstance(first, str):
        found.warn("owners", f"not known: {first}", "find out where the admin port of that proxy can be reached")
        return
    name, owners = first.get("instance"), first.get("owners") or {}
    if first.get("state") != MemberState.MEMBER:
        found.fail("owners", f"{name} is {first.get('state')}: {first.get('error')}", "see its log")
        return
    for other, at in (first.get("others") or {}).items():
        said = await _owners_at(at, login._replace(context=of_others))
        if isinstance(said, str):
            found.warn("owners", f"{other} was not asked: {said}", "run the doctor where it reaches the admin ports")
        elif said.get("instance") != other:
            fix = "give admin.bind of each instance an address of its own"
            found.fail("owners", f"the admin port of {other}, {at}, leads to {said.get('instance')}", fix)
        elif (said.get("state"), said.get("owners")) != (MemberState.MEMBER, owners):
            differ = f"{other} is {said.get('state')} with epoch {said.get('epoch')}, {name} has {first.get('epoch')}"
            found.fail("owners", f"{differ}: they do not have the same owners", f"see the log of {other}")
        else:
            found.ok("owners", f"{other} has the same owners as {name}")
    owned = ", ".join(f"{node_id} of {owner}" for node_id, owner in owners.items())
    found.ok("owners", f"{name} is a member; owners of epoch {first.get('epoch')}: brokers {owned}")


async def _owners_at(at: str, login: AdminLogin) -> dict[str, Any] | str:
    """Return the owners that the instance at ``at`` knows, or why not."""
    if not at:
        return "its admin port is not known to the others"
    try:
        return await state_of(parse_reachable(at), "owners", login)
    except OSError as error:
        return f"{at}: {error}"
