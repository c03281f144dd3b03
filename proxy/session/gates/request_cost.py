"""request_percentage: a request is charged what the table says when it goes, and its response when it comes.

The charge for the request comes first, so that those behind it, on any connection, wait for it. The response is charged
by its size and tells the throttle, as at a broker (docs/request-percentage.md).
"""

from typing import TYPE_CHECKING, Final

from protocol.fetch import fetch_session, partitions_in
from protocol.first_batch import first_batch
from protocol.headers import MORE
from proxy.session.gates.unanswered import ACKS_0
from proxy.session.in_flight import API, Entry, InFlight
from proxy.session.request_prefix import RequestPrefix
from proxy.session.sender import Sender
from proxy.session.serving import CHARGE, COORDINATE, FETCH, FETCH_KEY, PRODUCE, TELL, Served
from proxy.session.states import ANSWERING, IN_LINE
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.usage.accounts import Account
from proxy.usage.request_costs import PERCENT_S_PER_US
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.pair import Pair

KIND: Final = QuotaKind.REQUEST_PERCENTAGE
_RECORDS: Final = (PRODUCE, FETCH)
_PROMPT_KEYS: Final = frozenset((10, 18))
"""FindCoordinator and ApiVersions: a group member that has lost its connection sends them before its next heartbeat."""

Cost = tuple[float, float, bool]
"""Of a request: µs for what has come of it, µs for what is still to come, and whether it is exempt (acks=0)."""


class RequestCostGate:
    """Charges the requests of one connection, and their responses."""

    __slots__ = ("_in_flight", "_pair", "_rest_us", "_sender", "_session_partitions", "_waits")

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight, waits: Waits) -> None:
        self._pair = pair
        self._sender = sender
        self._in_flight = in_flight
        self._waits = waits
        self._rest_us = 0.0
        """Cost of what is still to come of the last request."""
        self._session_partitions = 0
        """Partitions of the connection's fetch session: later requests of the session do not list them (KIP-227)."""

    # ------------------------------------------------------------------------------------------------ what it costs

    def cost(
        self, api: Served, chunk: bytes, position: int, size: int, prefix: RequestPrefix, body: int
    ) -> Cost | None:
        """Return the cost of the request at ``position``; None if more of it has to come to know it.

        ``prefix`` finds the first field that is read of a Produce or Fetch. Raises ProtocolError if there is none.
        """
        if api.on_request not in _RECORDS:
            return self._pair.rules.costs.of_request[api.spec.api_key], 0.0, False
        end = position + 4 + size
        field = prefix.find(api, chunk, position, end, body)
        if field == MORE:
            return None
        if api.on_request == PRODUCE:
            return self.cost_of_produce(api, chunk, field, end, size)
        return self._cost_of_fetch(api, chunk, field, end), 0.0, False

    def cost_of_produce(self, api: Served, chunk: bytes, acks_at: int, end: int, size: int) -> Cost | None:
        """Return the cost of a Produce likewise; its size is charged as far as it has come: a claim is not a use."""
        batch = first_batch(api.spec, chunk, acks_at + 2, end)
        if batch is None:
            return None
        costs = self._pair.rules.costs
        byte_us = costs.of_produce_byte(batch)
        missing = max(end - len(chunk), 0)
        us = costs.of_produce(batch) + (size - missing) * byte_us
        return us, missing * byte_us, chunk.startswith(ACKS_0, acks_at)

    def _cost_of_fetch(self, api: Served, chunk: bytes, limits_at: int, end: int) -> float:
        partitions = partitions_in(api.spec, limits_at, end)
        if fetch_session(api.spec, chunk, limits_at).epoch > 0:
            partitions = max(partitions, self._session_partitions)
        self._session_partitions = partitions
        return self._fetch_us(api.spec.api_key)

    def _fetch_us(self, api_key: int) -> float:
        costs = self._pair.rules.costs
        return costs.of_request[api_key] + self._session_partitions * costs.partition_us

    # ----------------------------------------------------------------------------------------------------- requests

    def why_wait(self, api: Served, cost: Cost, coordinates: bool, now_ms: int) -> int:
        """Return why the next request may not go yet: it waits in line, or for the response before it; 0 if it may."""
        account = self._sender.account
        limited = account.limited(KIND)
        if not limited or not self._pair.rules.throttling.enforces:
            return 0
        if (
            self._in_flight
            and self._is_priced_by_answer(api)
            and any(self._is_priced_by_answer(entry[API]) for entry in self._in_flight)
        ):
            return ANSWERING  # one at a time, as at a broker: pipelining gains nothing
        shut = tuple([bound for bound in limited if bound.shut])
        if not shut:
            return 0
        what = What.REQUEST
        if api.on_request == FETCH:
            what = What.FETCH
        elif self._is_prompt(api, coordinates):
            what = What.COORDINATION
        us = cost[0] * PERCENT_S_PER_US
        return 0 if self._waits.ask_all(what, account, shut, us, now_ms) else IN_LINE

    def _is_priced_by_answer(self, api: Served) -> bool:
        return self._pair.rules.costs.of_answer_byte[api.spec.api_key] > 0

    @staticmethod
    def _is_prompt(api: Served, coordinates: bool) -> bool:
        """Whether others wait for it, so that it waits no longer than a window."""
        if api.on_request in _RECORDS:
            return False
        return coordinates or api.on_request == COORDINATE or api.spec.api_key in _PROMPT_KEYS

    def went(self, api: Served, cost: Cost, coordinates: bool, now_ms: int) -> None:
        """Charge a request that goes now, wherever it is answered."""
        account = self._sender.account
        if self._pair.rules.throttling.enforces and (
            self._is_prompt(api, coordinates) or now_ms >= self._pair.sasl.deadline_ms
        ):
            for bound in account.limited(KIND):
                if bound.shut and bound.live.owed_ms(now_ms):
                    bound.live.bring_forward(cost[0] * PERCENT_S_PER_US, now_ms)
        self.charge(account, cost, now_ms)
        if not self._is_priced_by_answer(api):
            self._imagine(account, cost[0], now_ms)

    @property
    def is_open(self) -> bool:
        """The next requests of the last one's client may go without asking ``why_wait`` and ``went``, if each is
        charged, until one that ``charge`` returns True for.
        """
        account = self._sender.account
        return self._pair.rules.throttling.enforces and not account.has_shadow(KIND) and not self.is_shut(account)

    @staticmethod
    def is_shut(account: Account) -> bool:
        """Whether a counter of the account is over its limit: requests ask it, and responses tell its throttle."""
        for bound in account.limited(KIND):  # noqa: SIM110  hot, and compiled a generator is an object
            if bound.shut:
                return True
        return False

    def charge(self, account: Account, cost: Cost, now_ms: int) -> bool:
        """Charge a request for what has come of it; whether those behind it have to ask."""
        us, rest_us, is_exempt = cost
        if is_exempt:
            self._rest_us = 0.0
            self._pair.rules.costs.exempt_us += int(us + rest_us + 0.5)
            return False
        self._rest_us = rest_us
        return self._spend(account, us, now_ms, requests=1)

    def take_rest_us(self) -> float:
        """Return the cost of what is still to come of the last request, for ``rest_came``."""
        rest_us, self._rest_us = self._rest_us, 0.0
        return rest_us

    def rest_came(self, account: Account, rest_us: float, now_ms: int) -> None:
        """Charge the rest of a request, all of which has come."""
        self._spend(account, rest_us, now_ms)
        self._imagine(account, rest_us, now_ms)

    @staticmethod
    def _spend(account: Account, us: float, now_ms: int, requests: int = 0) -> bool:
        whole_us = int(us + 0.5)  # usage records count whole ones; round() is a call
        use = account.meter.use_of(KIND)
        use.used += whole_us
        use.requests += requests
        is_shut = False
        for bound in account.bounds(KIND):
            if bound.charge(whole_us * PERCENT_S_PER_US, now_ms):
                bound.live.shut = is_shut = True
        return is_shut

    def _imagine(self, account: Account, us: float, now_ms: int) -> None:
        throttling = self._pair.rules.throttling
        if not throttling.enforces or account.has_shadow(KIND):
            throttling.imagine(account, KIND, us * PERCENT_S_PER_US, now_ms, id(self))

    # ---------------------------------------------------------------------------------------------------- responses

    def answered(self, entry: Entry, size: int, now_ms: int) -> Entry:
        """Charge a response of ``size`` bytes that begins to come; return its entry, with the throttle that it tells.

        The entry of a Fetch, which is charged by its size next, has this throttle time and does not tell it.
        """
        correlation_id, actions, api, told_ms, until_ms, account, came_ms, held_ms = entry
        rules, api_key = self._pair.rules, api.spec.api_key
        if self._is_priced_by_answer(api):
            us = size * rules.costs.of_answer_byte[api_key]
            self._spend(account, us, now_ms)
            request_us = self._fetch_us(api_key) if api_key == FETCH_KEY else rules.costs.of_request[api_key]
            self._imagine(account, us + request_us, now_ms)
        if not rules.throttling.enforces or not self.is_shut(account):
            return entry
        throttle_ms = max([bound.check(now_ms) for bound in account.limited(KIND)])
        if actions & CHARGE:
            told_ms = throttle_ms
        elif throttle_ms and now_ms + throttle_ms >= until_ms:  # the longer one; of equal ones this (KafkaApis)
            told_ms = max(self._pair.throttle(account, KIND, throttle_ms, now_ms), told_ms)
            until_ms = max(now_ms + told_ms, until_ms)
            actions |= TELL if told_ms else 0
        return (correlation_id, actions, api, told_ms, until_ms, account, came_ms, held_ms)
