"""request_percentage: a request is charged what the table says when it goes, and its response when it comes.

The charge for the request comes first, so that those behind it, on any connection, wait for it. The response is charged
by its size and tells the throttle, as at a broker (docs/request-percentage.md).
"""

from typing import TYPE_CHECKING, Final

from protocol.fetch import fetch_session, partitions_in
from protocol.first_batch import first_batch
from proxy.session.admission import Waiting
from proxy.session.exchange import ACKS_0, Exchange, Park, Request, RequestPrefix
from proxy.session.flow import ANSWERING, IN_LINE
from proxy.session.policies.fetch import waiting
from proxy.session.serving import CHARGE, COORDINATE, FETCH, FETCH_KEY, PRODUCE, Served
from proxy.usage.accounts import Account
from proxy.usage.request_costs import PERCENT_S_PER_US
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.session import Session

KIND: Final = QuotaKind.REQUEST_PERCENTAGE
_RECORDS: Final = (PRODUCE, FETCH)
_PROMPT_KEYS: Final = frozenset((10, 18))
"""FindCoordinator and ApiVersions: a group member that has lost its connection sends them before its next heartbeat."""


class Cost:
    """The cost of a request in µs: ``us`` is charged when it goes, ``rest_us`` when all of it has come.

    ``is_exempt``: it is counted, and charged to nobody (acks=0).
    """

    __slots__ = ("is_exempt", "rest_us", "us")

    def __init__(self, us: float, rest_us: float = 0.0, *, is_exempt: bool = False) -> None:
        self.us = us
        self.rest_us = rest_us
        self.is_exempt = is_exempt


class RequestTimePolicy:
    __slots__ = ("_session", "_session_partitions")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._session_partitions = 0
        """Partitions of the connection's fetch session: later requests of the session do not list them (KIP-227)."""

    # ------------------------------------------------------------------------------------------------ what it costs

    def cost(self, request: Request, prefix: RequestPrefix) -> Cost | None:
        """Return the cost of a request; None if more of it has to come to know it.

        ``prefix`` finds the first field that is read of a Produce or Fetch. Raises ProtocolError if there is none.
        """
        api = request.api
        if api.on_request not in _RECORDS:
            return Cost(self._session.worker.costs.of_request[api.spec.api_key])
        field = prefix.find(request)
        if field is None:
            return None
        if api.on_request == PRODUCE:
            return self.cost_of_produce(api, request.chunk, field, request.end, request.size)
        return Cost(self._cost_of_fetch(api, request.chunk, field, request.end))

    def cost_of_produce(self, api: Served, chunk: bytes, acks_at: int, end: int, size: int) -> Cost | None:
        """Return the cost of a Produce likewise; its size is charged as far as it has come: a claim is not a use."""
        batch = first_batch(api.spec, chunk, acks_at + 2, end)
        if batch is None:
            return None
        costs = self._session.worker.costs
        byte_us = costs.of_produce_byte(batch)
        missing = max(end - len(chunk), 0)
        if chunk.startswith(ACKS_0, acks_at):
            return Cost(costs.of_produce(batch) + size * byte_us, is_exempt=True)
        return Cost(costs.of_produce(batch) + (size - missing) * byte_us, missing * byte_us)

    def _cost_of_fetch(self, api: Served, chunk: bytes, limits_at: int, end: int) -> float:
        partitions = partitions_in(api.spec, limits_at, end)
        if fetch_session(api.spec, chunk, limits_at).epoch > 0:
            partitions = max(partitions, self._session_partitions)
        self._session_partitions = partitions
        return self._fetch_us(api.spec.api_key)

    def _fetch_us(self, api_key: int) -> float:
        costs = self._session.worker.costs
        return costs.of_request[api_key] + self._session_partitions * costs.partition_us

    # ----------------------------------------------------------------------------------------------------- requests

    def before(self, request: Request, cost: Cost, now_ms: int) -> Park | None:
        """Park the next request in its counter's queue, or until the response before it; returns None if it may go."""
        api, account = request.api, self._session.identity.account
        limited = account.limited(KIND)
        if not limited or not self._session.worker.throttling.enforces:
            return None
        if (
            self._session.in_flight
            and self._is_priced_by_answer(api)
            and any(self._is_priced_by_answer(exchange.api) for exchange in self._session.in_flight)
        ):
            return Park(ANSWERING)  # one at a time, as at a broker: pipelining gains nothing
        shut = tuple([bound for bound in limited if bound.shut])
        if not shut:
            return None
        what = Waiting.REQUEST
        if api.on_request == FETCH:
            what = waiting(request)
        elif self._is_prompt(api):
            what = Waiting.COORDINATION
        us = cost.us * PERCENT_S_PER_US
        return None if self._session.ticket.ask(what, account, shut, us, now_ms, request.passed) else Park(IN_LINE)

    def _is_priced_by_answer(self, api: Served) -> bool:
        return self._session.worker.costs.of_answer_byte[api.spec.api_key] > 0

    def _is_prompt(self, api: Served) -> bool:
        """Whether others wait for it, so that it waits no longer than a window."""
        if api.on_request in _RECORDS:
            return False
        return self._session.identity.coordinates or api.on_request == COORDINATE or api.spec.api_key in _PROMPT_KEYS

    def went(self, api: Served, cost: Cost, now_ms: int) -> None:
        """Charge a request that goes now, wherever it is answered."""
        session = self._session
        account = session.identity.account
        if session.worker.throttling.enforces and (self._is_prompt(api) or now_ms >= session.sasl.deadline_ms):
            for bound in account.limited(KIND):
                bound.bring_forward(cost.us * PERCENT_S_PER_US, now_ms)
        self.charge(account, cost, now_ms)
        if not self._is_priced_by_answer(api):
            self._simulate(account, cost.us, now_ms)

    def charge(self, account: Account, cost: Cost, now_ms: int) -> bool:
        """Charge a request for what has come of it; whether those behind it have to ask."""
        if cost.is_exempt:
            self._session.worker.costs.exempt_us += int(cost.us + 0.5)
            return False
        return self._spend(account, cost.us, now_ms, requests=1)

    def rest_came(self, account: Account, rest_us: float, now_ms: int) -> None:
        self._spend(account, rest_us, now_ms)
        self._simulate(account, rest_us, now_ms)

    @staticmethod
    def _spend(account: Account, us: float, now_ms: int, requests: int = 0) -> bool:
        whole_us = int(us + 0.5)  # usage records count whole ones; round() is a call
        use = account.meter.use_of(KIND)
        use.used += whole_us
        use.requests += requests
        is_shut = False
        for bound in account.bounds(KIND):
            if throttle_ms := bound.charge(whole_us * PERCENT_S_PER_US, now_ms):
                bound.owe(throttle_ms, now_ms)
                is_shut = True
        return is_shut

    def _simulate(self, account: Account, us: float, now_ms: int) -> None:
        self._session.worker.throttling.counts.simulate(account, KIND, us * PERCENT_S_PER_US, now_ms, id(self))

    # ---------------------------------------------------------------------------------------------------- responses

    def after(self, exchange: Exchange, size: int, now_ms: int) -> None:
        """Charge a response of ``size`` bytes that begins to come, which then tells the throttle.

        A Fetch is charged by its size next: it has this throttle time, and does not tell it yet.
        """
        account, api = exchange.account, exchange.api
        worker, api_key = self._session.worker, api.spec.api_key
        if self._is_priced_by_answer(api):
            us = size * worker.costs.of_answer_byte[api_key]
            self._spend(account, us, now_ms)
            request_us = self._fetch_us(api_key) if api_key == FETCH_KEY else worker.costs.of_request[api_key]
            self._simulate(account, us + request_us, now_ms)
        if not worker.throttling.enforces or not account.is_shut(KIND):
            return
        throttle_ms = max([bound.check(now_ms) for bound in account.limited(KIND)])
        if exchange.actions & CHARGE:
            exchange.throttle_ms = throttle_ms
        elif throttle_ms and now_ms + throttle_ms >= exchange.throttled_until_ms:
            # The longer one; of equal ones this (KafkaApis).
            exchange.tell(self._session.throttle(account, KIND, throttle_ms, now_ms), now_ms)
