"""The format of ``principals.json``: certificate names, the two kinds of rules, the first messages of SCRAM and OAuth.

A case has what is given, and either the members that are expected or ``error``, of which the failure alone counts.
"""

import base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from proxy.identity.certificates import ssl_mapping
from proxy.identity.certificates.distinguished_name import rfc2253
from proxy.identity.kerberos import name as kerberos_name
from proxy.identity.mechanisms import oauthbearer, scram
from tests.conformance.cases import EXACT, Case, difference
from tests.conformance.model import Failure, Outcome, attempt

Facts = dict[str, object]


def x509_name(case: Case) -> Facts:
    return {"rfc2253": rfc2253(base64.b64decode(case["cert_der_base64"], validate=True))}


def ssl_name(case: Case) -> Facts:
    return {"name": ssl_mapping.parse_rules(case["rules"]).user(case["dn"])}


def kerberos(case: Case) -> Facts:
    rules = case["rules"] or ["DEFAULT"]  # the file's empty list is a setting that is not there
    return {"name": kerberos_name.parse_rules(rules, case["default_realm"]).user(case["principal"])}


def scram_first(case: Case) -> Facts:
    claim = scram.claim_in(case["message"].encode())
    if claim is None:
        raise ValueError("claims nothing")
    return {"username": claim.name, "token_auth": str(claim.is_token).lower()}


def oauth_first(case: Case) -> Facts:
    found = oauthbearer.token_in(case["message"].encode())
    if found is None:
        raise ValueError("has no token")
    return dict(zip(("token", "authzid"), found, strict=True))


# By the file's member: what answers its cases, and the members of a case that are given and not expected.
CHECKS: Final[dict[str, tuple[Callable[[Case], Facts], set[str]]]] = {
    "x509_names": (x509_name, {"openssl_subject", "cert_der_base64"}),
    "ssl_mapping": (ssl_name, {"rules", "dn"}),
    "kerberos": (kerberos, {"default_realm", "rules", "principal"}),
    "scram_first": (scram_first, {"message", "authzid"}),  # always that of the user, else nothing is claimed
    "oauth_first": (oauth_first, {"message"}),
}


def run(document: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    """Yield ``(case id, outcome)`` for every case of the file; the id is the member and the place in it."""
    for member, (answer, given) in CHECKS.items():
        for index, case in enumerate(document.get(member, ())):
            case_id = f"{member}[{index}]"
            yield case_id, attempt(case_id, case, partial(run_case, case_id, case, answer, given))


def run_case(case_id: str, case: Case, answer: Callable[[Case], Facts], given: set[str]) -> Outcome:
    """Run one case; it fails if a member that is not given is not answered as expected, or none is expected."""
    expected = {member: value for member, value in case.items() if member not in given}
    try:
        got = answer(case)
    except ValueError as error:
        return None if set(expected) == {"error"} else Failure(case_id, expected, error)
    where = difference(expected, got, EXACT) if expected else "nothing is expected"
    return None if where is None else Failure(case_id, expected, got, where)
