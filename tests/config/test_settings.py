from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from config.brokers import BrokerPorts, BrokerRange
from config.forms import Section
from config.settings import (
    BrokerSasl,
    ClientTls,
    Cluster,
    FileStore,
    Kerberos,
    Listener,
    Quotas,
    Settings,
    Window,
)
from config.units import Address, AdvertisedAddress

SETTINGS = Settings(
    cluster=Cluster(name="demo", bootstrap=(Address("127.0.0.1", 19092),)),
    listeners=(
        Listener(
            name="PLAIN",
            bind=Address("127.0.0.1", 9092),
            advertise=AdvertisedAddress("127.0.0.1"),
            brokers=BrokerPorts((BrokerRange(range(10), range(9100, 9110), range(9100, 9110)),)),
        ),
    ),
    quotas=Quotas(store=FileStore(path=Path("quotas.yaml"))),
)


def test_settings_have_the_documented_defaults() -> None:
    settings = SETTINGS
    assert (settings.cluster.refresh_s, settings.cluster.connect_timeout_s) == (30, 10)
    assert settings.listeners[0].authentication == "none"
    assert (settings.quotas.mode, settings.quotas.response, settings.quotas.max_delay_ms) == ("enforce", "mute", None)
    assert (settings.quotas.window.samples, settings.quotas.window.size_ms) == (11, 1000)
    assert settings.limits.request_bytes == 100 * 2**20
    assert settings.limits.request_before_authentication_bytes == 512 * 2**10
    assert settings.limits.response_bytes == 256 * 2**20
    assert settings.limits.connections is None
    assert settings.kafka.fetch_max_version is None
    assert (str(settings.admin.bind), settings.metrics.max_series) == ("127.0.0.1:9404", 20_000)
    assert (settings.drain.delay_s, settings.drain.timeout_s) == (3, 30)
    assert (settings.log.level, settings.log.format, settings.log.throttles) == ("info", "auto", False)


def test_settings_are_frozen_after_loading() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(SETTINGS.metrics, "max_series", 1)  # noqa: B010  mypy already refuses the plain form


def inner(field: FieldInfo) -> list[type[Section]]:
    """Return the section that a field holds, as a list of none or one."""
    kinds = (field.annotation, *get_args(field.annotation))
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]


def sections(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for field in model.model_fields.values():
        for section in inner(field):
            yield from sections(section)


def test_every_setting_is_described() -> None:
    found = list(sections(Settings))
    assert {ClientTls, BrokerSasl, Kerberos, Window} < set(found)
    for model in found:
        assert (model.__doc__ or "").endswith("."), model
        for name, field in model.model_fields.items():
            assert inner(field) or (field.description or "").endswith("."), (model, name)
