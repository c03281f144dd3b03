"""The ``request_costs`` section: the broker thread time charged per request under ``request_percentage``."""

from pydantic import Field, field_validator

from config.forms import Number, Section
from config.problems import InvalidValue

MOST_US = 1e9


class RequestCosts(Section):
    """Costs of requests under `request_percentage`, in microseconds; see request-percentage.md."""

    scale: Number = Field(
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

    @field_validator("scale")
    @classmethod
    def _positive(cls, scale: float) -> float:
        if not 0.01 <= scale <= 100:
            raise InvalidValue(
                f"{scale:g} is not a sensible factor", "write a number from 0.01 to 100, as in scale: 1.5"
            )
        return scale

    @field_validator("*")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not value <= MOST_US:
            raise InvalidValue(f"{value:g} is too much", "1000000000 (a thousand seconds) is the most")
        return value
