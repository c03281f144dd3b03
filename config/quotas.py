"""The sections ``quotas``, where they come from and how they are enforced, and ``request_costs``."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from config.forms import Count, FilePath, IpNetwork, Milliseconds, Name, Number, Section, within
from config.problems import InvalidValue, InvalidValues, Steps
from config.stores import FileStore, Store, of_known_type

Mode = Literal["enforce", "shadow", "off"]

MOST_US = 1e9
MOST_SAMPLES = 1000
MOST_SAMPLE_MS = 3_600_000
MOST_WINDOW_MS = 86_400_000
"""The longest window that `sluice analyze` accepts in a usage record (``analysis.schema``)."""


class Window(Section):
    """How usage is measured, like a broker's `quota.window.num` and `quota.window.size.seconds`."""

    samples: Annotated[Count, within(1, MOST_SAMPLES, "{} samples are too many", f"{MOST_SAMPLES} is the most")] = (
        Field(11, description="How many samples are kept: `quota.window.num`. At most 1000.")
    )
    size_ms: Milliseconds = Field(
        1000,
        alias="size",
        description="How long one sample lasts: `quota.window.size.seconds`. At most 1h, and at most 1d for all "
        "samples together.",
    )

    @field_validator("size_ms")
    @classmethod
    def _short_enough(cls, size_ms: int, info: ValidationInfo) -> int:
        if size_ms > MOST_SAMPLE_MS:
            raise InvalidValue("is too long for one sample", "1h is the most")
        if size_ms * info.data.get("samples", 1) > MOST_WINDOW_MS:
            raise InvalidValue("makes the window of all samples too long", "together they may last 1d")
        return size_ms


class Exempt(Section):
    """Clients that are never throttled: they are metered, and charged to no counter."""

    users: tuple[Name, ...] = Field((), description="Users, once they are authenticated.")
    client_ids: tuple[Name, ...] = Field(
        (), description="Client-ids. Any client can claim one: `sluice check` warns of them."
    )
    networks: tuple[IpNetwork, ...] = Field(
        (), description="IP networks of clients. Behind `proxy_protocol`, the address is the one in its header."
    )


class Quotas(Section):
    """Where quotas come from and how they are enforced."""

    store: Store | None = Field(None, discriminator="type", description="Where quotas are kept.")
    stores: tuple[Annotated[Store, Field(discriminator="type")], ...] = Field(
        (),
        description="Instead of `store`, several stores in layers: the first that names an entity wins, "
        "kind by kind ([quotas.md](quotas.md#layers)). All but the last are files.",
    )
    when_unavailable: Literal["refuse", "static", "unlimited"] = Field(
        "refuse",
        description="If a store cannot be read at the start. `refuse`: no client is accepted until it can. `static`: "
        "the quotas in the file `static` are in force until then. `unlimited`: no client is limited until then "
        "([operations.md](operations.md#when-the-store-of-quotas-is-away)).",
    )
    static: FilePath | None = Field(None, description="A quota file, for `when_unavailable: static`.")
    mode: Mode = Field(
        "enforce",
        description="`shadow` measures and reports what would be throttled, and delays nothing. It can be switched at "
        "run time ([operations.md](operations.md#the-mode)).",
    )
    response: Literal["mute", "delay", "auto"] = Field(
        "mute",
        description="`mute` answers at once and stops reading (KIP-219), as a broker does. `delay` delays the response "
        "(KIP-13), as clients older than 2.0 expect it. `auto` delays only for the API versions of such clients.",
    )
    window: Window = Field(Window(), description="How usage is measured.")
    controller_window: Window = Field(
        Window(),
        description="The size of the token bucket of `controller_mutation_rate`: the worth of all samples together. "
        "`samples` is `controller.quota.window.num`, `size` is `controller.quota.window.size.seconds`.",
    )
    exempt: Exempt = Field(Exempt(), description="Clients that are never throttled.")
    admins: tuple[Name, ...] = Field(
        (),
        description="Users who may see and change quotas with Kafka's tools through the proxy "
        "([quotas.md](quotas.md#changing-quotas-with-kafkas-tools)). `ANONYMOUS` is any client that "
        "does not log in.",
    )
    max_delay_ms: Milliseconds | None = Field(
        None,
        alias="max_delay",
        description="The longest throttle. Default: unlimited. The rest stays owed, but each connection gets one "
        "request through per throttle: a way around the quota.",
    )
    max_hold_ms: Milliseconds = Field(
        8000,
        alias="max_hold",
        description="The longest time that a Fetch waits for its turn; it then gets an empty response. Keep it "
        "below the clients' request timeout: franz-go 10 s, Java 30 s.",
    )

    @property
    def layers(self) -> tuple[Store, ...]:
        """The stores, the uppermost first; changes go to the last one."""
        return self.stores if self.store is None else (self.store,)

    def stores_by_steps(self) -> Iterator[tuple[Steps, Store]]:
        """Yield each store with the steps to its section."""
        for index, store in enumerate(self.layers):
            yield (("quotas", "store") if self.store is not None else ("quotas", "stores", index)), store

    @field_validator("store", mode="before")
    @classmethod
    def _known(cls, store: object) -> object:
        """Refuse a store of an unknown type for its type alone: its other settings cannot be judged."""
        wrong = InvalidValues()
        known = of_known_type(store, (), wrong)
        wrong.raise_if_any()
        return known

    @field_validator("stores", mode="before")
    @classmethod
    def _all_known(cls, stores: object) -> object:
        if not isinstance(stores, Sequence):
            return stores
        wrong = InvalidValues()
        known = [of_known_type(store, (index,), wrong) for index, store in enumerate(stores)]
        wrong.raise_if_any()
        return known

    @field_validator("stores")
    @classmethod
    def _over_files(cls, stores: tuple[Store, ...]) -> tuple[Store, ...]:
        wrong = InvalidValues()
        for index, store in enumerate(stores[:-1]):
            if not isinstance(store, FileStore):
                wrong.add((index, "type"), f"a {store.type} store must be the lowest layer", "write it last")
        wrong.raise_if_any()
        return stores

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        wrong = InvalidValues()
        if self.store is None and not self.stores:
            wrong.add(("store",), "is missing", "add `store`")
        if self.store is not None and self.stores:
            wrong.add(("stores",), "cannot be combined with store", "write all stores here, or leave it out")
        if self.when_unavailable == "static" and self.static is None:
            wrong.add(("when_unavailable",), "needs a quota file", "name it in quotas.static")
        if self.when_unavailable != "static" and self.static is not None:
            wrong.add(("static",), f"is not used with when_unavailable: {self.when_unavailable}", "write static there")
        wrong.raise_if_any()
        return self


class RequestCosts(Section):
    """Costs of requests under `request_percentage`, in microseconds; see request-percentage.md."""

    scale: Annotated[
        Number, within(0.01, 100, "{:g} is not a sensible factor", "write a number from 0.01 to 100, as in scale: 1.5")
    ] = Field(
        1.0,
        description="A factor for all costs below: more than 1 for slower brokers. `sluice calibrate` measures it.",
    )
    fetch_us: Number = Field(40.0, description="A Fetch or ShareFetch.")
    fetch_kib_us: Number = Field(0.2, description="Each KiB of its response.")
    fetch_partition_us: Number = Field(1.5, description="Each partition that it requests, or that its session has.")
    produce_us: Number = Field(40.0, description="A Produce.")
    produce_kib_us: Number = Field(1.7, description="Each KiB of it, as sent.")
    produce_record_us: Number = Field(0.12, description="Each record in it.")
    produce_zstd_us: Number = Field(40.0, description="Extra for a Produce compressed with zstd.")
    metadata_us: Number = Field(35.0, description="A Metadata request.")
    metadata_kib_us: Number = Field(25.0, description="Each KiB of its response.")
    offset_commit_us: Number = Field(60.0, description="An OffsetCommit.")
    other_us: Number = Field(40.0, description="Any other request.")

    @field_validator("*")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not value <= MOST_US:
            raise InvalidValue(f"{value:g} is too much", "1000000000 (a thousand seconds) is the most")
        return value
