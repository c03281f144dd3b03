from pathlib import Path

import pytest
from pydantic import ValidationError

from config.brokers import BrokerPorts
from config.settings import Cluster, FileStore, Listener, Quotas, Settings
from config.units import Address

SETTINGS = Settings(
    cluster=Cluster(name="demo", bootstrap=(Address("127.0.0.1", 19092),)),
    listeners=(
        Listener(
            name="PLAIN",
            bind=Address("127.0.0.1", 9092),
            advertise="127.0.0.1",
            brokers=BrokerPorts(((range(10), range(9100, 9110)),)),
        ),
    ),
    quotas=Quotas(store=FileStore(path=Path("quotas.yaml"))),
)


def test_defaults() -> None:
    settings = SETTINGS
    assert (settings.cluster.refresh_s, settings.cluster.connect_timeout_s) == (30, 10)
    assert settings.listeners[0].authentication == "none"
    assert (settings.quotas.mode, settings.quotas.response, settings.quotas.max_delay_ms) == ("enforce", "auto", None)
    assert (settings.quotas.window.samples, settings.quotas.window.size_ms) == (11, 1000)
    assert settings.limits.request_bytes == 100 * 2**20
    assert settings.limits.request_before_authentication_bytes == 512 * 2**10
    assert settings.limits.response_bytes == 256 * 2**20
    assert settings.limits.connections is None
    assert (settings.kafka.fetch_max_version, settings.kafka.share_groups) == (15, False)
    assert (str(settings.admin.bind), settings.admin.max_entities) == ("127.0.0.1:9404", 2000)
    assert settings.drain.timeout_s == 30
    assert (settings.log.level, settings.log.format) == ("info", "auto")


def test_settings_never_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(SETTINGS.admin, "max_entities", 1)  # noqa: B010  mypy already refuses the plain form


def test_every_setting_is_described() -> None:
    for section in type(SETTINGS).model_fields.values():
        assert section.annotation is not None
    for model in (Cluster, Listener, Quotas, FileStore):
        assert all(field.description for field in model.model_fields.values()), model
