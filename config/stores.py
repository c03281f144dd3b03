"""The sections for quota stores, one for each type."""

from collections.abc import Mapping
from math import inf
from typing import Annotated, Final, Literal

from pydantic import Field

from config.forms import FilePath, Flag, Given, Milliseconds, Name, Section, within
from config.problems import InvalidValues, Steps, suggestion


class FileStore(Section):
    """Quotas in a YAML file, reloaded on SIGHUP and when it changes."""

    type: Literal["file"] = Field("file", description="The kind of store.")
    path: FilePath = Field(description="The file, relative to the configuration file. It must exist at the start.")


class ZooKeeperSasl(Section):
    """Login to ZooKeeper with SASL DIGEST-MD5, as brokers do it with a JAAS section called Client."""

    username: Name = Field(description="The user. If the brokers have `zookeeper.set.acl`, it must be theirs.")
    password_file: FilePath = Field(
        description="A file that contains only the password. A trailing newline is ignored."
    )


class ZooKeeperTls(Section):
    """TLS to ZooKeeper. Without this section, the connection is plaintext."""

    ca: FilePath = Field(description="PEM file of the authorities that verify the servers.")
    verify_hostname: Flag = Field(
        True, description="Whether a server's certificate must match its host name. The chain is verified in any case."
    )
    certificate: FilePath | None = Field(None, description="PEM chain that the proxy presents to the servers.")
    key: FilePath | None = Field(None, description="PEM key of `certificate`, not encrypted.")


class ZooKeeperStore(Section):
    """Quotas in ZooKeeper, in the tree that Kafka uses up to 3.9."""

    type: Literal["zookeeper"] = Field("zookeeper", description="The kind of store.")
    connect: Name = Field(description="As `zookeeper.connect`: `host:port,host:port/chroot`.")
    session_timeout_ms: Annotated[
        Milliseconds, within(1_000, inf, "is shorter than 1s", "sessions would end by themselves")
    ] = Field(18_000, alias="session_timeout", description="As `zookeeper.session.timeout.ms`. At least 1s.")
    sasl: Given[ZooKeeperSasl] = None
    tls: Given[ZooKeeperTls] = None
    set_acl: Flag = Field(
        False,
        description="As `zookeeper.set.acl`: only Sluice's own user may change the nodes that Sluice writes, or "
        "read quotas of users.",
    )


class ClusterStore(Section):
    """The quotas of the cluster behind the proxy, read from its brokers with TLS and login as in `cluster`."""

    type: Literal["cluster"] = Field("cluster", description="The kind of store.")
    poll_ms: Annotated[Milliseconds, within(100, 3_600_000, "is too short or too long", "100ms to 1h")] = Field(
        5_000,
        alias="poll",
        description="How often the brokers are polled. A change made through the proxy is noticed at once.",
    )


Store = FileStore | ZooKeeperStore | ClusterStore

STORES: Final[dict[str, type[FileStore] | type[ZooKeeperStore] | type[ClusterStore]]] = {
    "file": FileStore,
    "zookeeper": ZooKeeperStore,
    "cluster": ClusterStore,
}
"""The model of each store type."""


def of_known_type(store: object, at: Steps, wrong: InvalidValues) -> object:
    """Return a section with its type; the default is file."""
    kind = store.get("type") if isinstance(store, Mapping) else None
    if isinstance(kind, str) and kind not in STORES:
        wrong.add((*at, "type"), f"{kind!r} is not known", suggestion(kind, [*STORES]))
    return {"type": "file", **store} if isinstance(store, Mapping) else store
