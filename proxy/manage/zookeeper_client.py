"""Reads ZooKeeper connection settings from a file, as for kafka-configs' ``--zk-tls-config-file`` or as of a broker.

The login, which Kafka reads from a JAAS file and a Java property, is ``sasl.jaas.config`` here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from config.client_properties import parse_jaas, parse_properties
from config.document import read_text
from config.problems import ConfigError, Problem
from config.stores import ZooKeeperSasl, ZooKeeperTls
from config.stores import ZooKeeperStore as Settings
from quotas.stores.base import QuotaStore

_SSL: Final = "zookeeper.ssl."
_ENABLE, _CA, _OWN = f"{_SSL}client.enable", f"{_SSL}truststore.location", f"{_SSL}keystore.location"
_VERIFY: Final = (f"{_SSL}endpoint.identification.algorithm", f"{_SSL}hostnameVerification")
_LOGIN, _SET_ACL = "sasl.jaas.config", "zookeeper.set.acl"
_DIGEST: Final = "DigestLoginModule"
_MEANINGLESS: Final = frozenset((f"{_SSL}truststore.password", f"{_SSL}keystore.password"))  # PEM files have none
WORDS: Final = {
    "quotas.store.connect": "--zookeeper",
    "quotas.store.sasl": f"{_LOGIN} of --zookeeper-config",
    "quotas.store.tls.ca": _CA,
    "quotas.store.tls.certificate": _OWN,
    "quotas.store.tls.verify_hostname": _VERIFY[0],
    "quotas.store.tls": f"{_ENABLE} of --zookeeper-config",
    " and .tls": " and --zookeeper-config",
    " and .key": "",
}
"""Names of the proxy's settings → those of the command line."""


def open_zookeeper(connect: str, config: Path | None) -> QuotaStore:
    """Return the store of a ZooKeeper. Raises ConfigError."""
    from quotas.stores.zookeeper.store import ZooKeeperStore  # and with it kazoo

    settings, password = (Settings(connect=connect), None) if config is None else settings_of(connect, config)
    return ZooKeeperStore(settings, password=password, words=WORDS)


def settings_of(connect: str, config: Path) -> tuple[Settings, str | None]:
    """Return the settings and the password in a file. Raises ConfigError."""
    properties = parse_properties(read_text(config))
    login = _login(config, properties)
    tls = _tls(config, properties)
    # kafka-configs protects nodes if it logs in, by either means; brokers do if they are configured to.
    secure = login is not None or (tls is not None and tls.certificate is not None)
    sections: dict[str, Any] = {} if tls is None else {"tls": tls}
    if login is not None:
        sections["sasl"] = ZooKeeperSasl(username=login[0], password_file=config)
    set_acl = properties.get(_SET_ACL, str(secure)).lower() == "true"
    settings = Settings(connect=connect, set_acl=set_acl, **sections)
    return settings, None if login is None else login[1]


def _login(config: Path, properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return user and password. Raises ConfigError, which never quotes them."""
    if _LOGIN not in properties:
        return None
    try:
        login = parse_jaas(properties[_LOGIN])
    except ValueError as error:
        raise _wrong(config, _LOGIN, str(error)) from None
    user, password = login.options.get("username"), login.options.get("password")
    if login.module != _DIGEST or not user or not password:
        like = f'write org.apache.zookeeper.server.auth.{_DIGEST} required username="..." password="...";'
        raise _wrong(config, _LOGIN, "is no login by DIGEST-MD5", like)
    return user, password


def _tls(config: Path, properties: Mapping[str, str]) -> ZooKeeperTls | None:
    if properties.get(_ENABLE, "").lower() != "true":
        return None
    known = {_ENABLE, _CA, _OWN, f"{_SSL}truststore.type", f"{_SSL}keystore.type", *_VERIFY, *_MEANINGLESS}
    if strange := sorted(key for key in properties if key.startswith(_SSL) and key not in known):
        raise _wrong(config, strange[0], "is not supported", "leave it out")
    ca, own = (_pem(config, properties, store) for store in ("truststore", "keystore"))
    if ca is None:
        raise _wrong(config, _CA, "is missing", "name a PEM file of the authorities that verify the servers")
    verify = properties.get(_VERIFY[0], "https") != "" and properties.get(_VERIFY[1], "true").lower() == "true"
    return ZooKeeperTls(ca=ca, certificate=own, verify_hostname=verify)


def _pem(config: Path, properties: Mapping[str, str], store: str) -> Path | None:
    location = properties.get(f"{_SSL}{store}.location")
    if location is None:
        return None
    kind = properties.get(f"{_SSL}{store}.type") or location.rpartition(".")[2]  # as ZooKeeper guesses
    if kind.upper() != "PEM":
        fix = "convert it (keytool -importkeystore -deststoretype pkcs12, openssl pkcs12 -nodes), and name it NAME.pem"
        raise _wrong(config, f"{_SSL}{store}.location", f"{location} is no PEM file", fix)
    return Path(location)


def _wrong(config: Path, key: str, message: str, fix: str = "") -> ConfigError:
    return ConfigError([Problem(str(config), 0, 0, key, message, fix)])
