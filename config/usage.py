"""The ``usage`` section: usage records."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from config.forms import Bytes, Count, CountOrZero, FilePath, Flag, Given, Milliseconds, Name, Seconds, Section, within
from config.problems import InvalidValue


class UsageTopic(Section):
    """A topic of the cluster, created if it is missing. The proxy's own login (`cluster.sasl`) must be allowed to."""

    name: Name = Field("sluice-usage", description="The topic's name.")
    partitions: Count = Field(12, description="How many partitions it is created with.")
    replication_factor: Count | None = Field(
        None, description="How many replicas it is created with. Default: the brokers' `default.replication.factor`."
    )
    retention_ms: Milliseconds = Field(
        168 * 3_600_000,
        alias="retention",
        description="The `retention.ms` it is created with. Choose a longer time than ingestion may ever be down.",
    )
    protect: Flag = Field(
        True,
        description="Whether clients of the proxy are prevented from producing to it "
        "([security.md](security.md#the-usage-topic)). This does not replace ACLs.",
    )


class UsageFiles(Section):
    """Files in a directory, one document per line. Complete files end in `.jsonl`."""

    directory: FilePath = Field(
        Path("/var/lib/sluice/usage"),
        description="The directory. A missing one is created with mode 0700. Files have mode 0600.",
    )
    rotate_bytes: Bytes = Field(64 * 2**20, alias="rotate_size", description="The size at which a file is complete.")
    rotate_s: Seconds = Field(
        60.0, alias="rotate_after", description="The age at which a file is complete, whatever its size."
    )
    keep_bytes: Bytes = Field(
        10 * 2**30,
        alias="keep",
        description="The most space for all complete files together. The oldest are deleted first.",
    )


class Usage(Section):
    """Records of each client's usage, shipped once per interval to a topic or to files, for `sluice analyze`."""

    topic: Given[UsageTopic] = None
    files: Given[UsageFiles] = None
    interval_ms: Annotated[
        Milliseconds, within(0, 3_600_000, "{} ms is too long", "write 1h at most; 1s gives the finest detail")
    ] = Field(1000, alias="interval", description="The interval that one record covers.")
    instance: Name | None = Field(
        None,
        description="The name of this proxy in its records. It must differ between the proxies of a cluster. Default: "
        "the host name.",
    )
    buffer_bytes: Bytes = Field(
        64 * 2**20,
        alias="buffer",
        description="The most data buffered while the topic or the disk is unavailable. Beyond that, the oldest "
        "records are dropped and counted.",
    )
    max_clients: Count = Field(
        100_000,
        description="The most clients tracked separately at one time. Further clients of a user share the "
        "client-id `sluice:other`.",
    )
    max_addresses: CountOrZero = Field(
        1000,
        description="The most addresses with rows of their own per interval. The others of a listener are summed "
        "up as `other`. 0: no record contains an address.",
    )

    @model_validator(mode="after")
    def _to_one_place(self) -> Self:
        if (self.topic is None) == (self.files is None):
            said = "has neither topic nor files" if self.topic is None else "has both topic and files"
            raise InvalidValue(said, "records go to one place: write `topic: {}`, or files with a directory")
        return self
