"""The quota kinds, by Kafka's property names."""

from enum import StrEnum


class QuotaKind(StrEnum):
    """What a quota limits; the value is the property name that ``kafka-configs.sh`` uses (QuotaConfig)."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"
