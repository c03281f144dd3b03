"""Quotas of users, and of pairs of user and client-id: which one holds, for load of exact shape."""

from collections.abc import Iterator

import pytest

from tests.harness.guarded import guarded_sluice
from tests.harness.load import Load, Shape, produce_request, run_loads
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S
from tests.harness.sasl import log_in_scram
from tests.harness.secure import SASL, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration]

WINDOWS = 3
LOGIN_S = 5.0  # what logins may take on a busy machine
REQUEST_BYTES = 10_000
TOLERANCE = 0.15  # over three short windows; ±5 % over long ones is test_identity.py's
# (user, client-id) → the rate it must get, by the most specific of these:
EXPECTED = {
    ("alice", "vip"): 300_000,
    ("alice", "other"): 100_000,
    ("bob", "vip"): 50_000,
    ("carol", "shared"): 200_000,
    ("dave", "shared"): 200_000,
}
TENANT_LIMIT = 150_000
TENANT = (("erin", "orders"), ("erin", "reports"), ("frank", "orders"))
"""Two users on three connections under one cap, one of them under a quota of his own as well."""
QUOTAS = f"""
groups:
  tenant: [erin, frank]
caps:
  - {{entity: {{user-group: tenant}}, producer_byte_rate: {TENANT_LIMIT}}}
quotas:
  - {{entity: {{user: alice}}, producer_byte_rate: 100000}}
  - {{entity: {{user: alice, client-id: vip}}, producer_byte_rate: 300000}}
  - {{entity: {{user: {{default: true}}, client-id: shared}}, producer_byte_rate: 200000}}
  - {{entity: {{user: erin}}, producer_byte_rate: 120000}}
  - {{entity: {{client-id: vip}}, producer_byte_rate: 50000}}
  - {{entity: {{client-id: other}}, producer_byte_rate: 20000}}
"""


@pytest.fixture(scope="module")
def loads(secure_cluster: SecureCluster) -> Iterator[dict[tuple[str, str], Load]]:
    topic = fresh_name("policy-of-users")
    secure_cluster.cluster.create_topic(topic)
    listeners = {SASL: secure_cluster.listeners()[SASL]}
    with guarded_sluice(secure_cluster.cluster, quotas=QUOTAS, settings=SHORT_WINDOW, listeners=listeners) as guarded:
        whom = [*EXPECTED, *TENANT]
        shapes = [_shape(secure_cluster, guarded.sluice, topic, user, client_id) for user, client_id in whom]
        yield dict(zip(whom, run_loads(shapes, SHORT_WINDOW_S * (1 + WINDOWS) + LOGIN_S), strict=True))


@pytest.mark.parametrize("whom", EXPECTED, ids=" with ".join)
def test_the_most_specific_quota_holds(loads: dict[tuple[str, str], Load], whom: tuple[str, str]) -> None:
    """Two users with one client-id have a counter each: both of them get what one would."""
    assert loads[whom].errors == []
    series = loads[whom].series()
    assert series.steady_rate(WINDOWS, SHORT_WINDOW_S) == pytest.approx(EXPECTED[whom], rel=TOLERANCE)


def test_a_tenant_has_its_cap_and_each_of_its_users_gets_on(loads: dict[tuple[str, str], Load]) -> None:
    """Erin's quota and the tenant's cap hold at once; frank, under the cap alone, has what she leaves of it."""
    of_tenant = [loads[whom] for whom in TENANT]
    assert [load.errors for load in of_tenant] == [[], [], []]
    series = [load.series() for load in of_tenant]
    begin = min(each.start_s() for each in series) - 0.5
    erin, also_erin, frank = (each.rate(begin, begin + WINDOWS * SHORT_WINDOW_S) for each in series)
    assert erin + also_erin + frank < TENANT_LIMIT * (1 + TOLERANCE)
    assert erin + also_erin < 120_000 * (1 + TOLERANCE)
    assert min(erin, also_erin, frank) > TENANT_LIMIT / 20


def _shape(secure: SecureCluster, sluice: SluiceProcess, topic: str, user: str, client_id: str) -> Shape:
    def log_in(connection: Connection) -> None:
        log_in_scram(connection, user, secure.passwords[user])

    (address,) = sluice.listeners[SASL].brokers.values()
    return Shape(address, produce_request(topic, client_id, REQUEST_BYTES), log_in=log_in)
