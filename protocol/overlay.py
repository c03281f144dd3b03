"""Facts that the schemas lack: a few lines by hand over the generated table.

Everything else about an API is in ``api_table.json``, which ``python -m protocol.generate`` writes.
"""

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
UNREGISTER_BROKER: Final = 64
"""Offered by brokers without ZooKeeper alone."""
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79

BROKER_ADDRESSES: Final[dict[int, tuple[str, ...]]] = {
    PRODUCE: ("#0 node_endpoints",),  # v10+, KIP-951
    FETCH: ("#0 node_endpoints",),  # v16+, KIP-951
    METADATA: ("brokers",),
    FIND_COORDINATOR: ("coordinators", ""),  # v4+, KIP-699; before that the root itself
    DESCRIBE_CLUSTER: ("brokers",),
    SHARE_FETCH: ("node_endpoints",),
    SHARE_ACKNOWLEDGE: ("node_endpoints",),
}
"""The broker addresses in a response: the path of the struct, or array of structs, whose first int32 is the node id and
which has ``host`` and ``port``; "" is the root. The first path that a version has is used.

Not listed, because no client connects to a broker by them: user_endpoint of the Streams groups (the application's own
server, KIP-1071), node_endpoints of FetchSnapshot and of the quorum's own APIs (KRaft controllers, which clients are
not offered).
"""

CONTROLLER_LISTENERS: Final = "listeners:[name:string host:string"
"""The part of a layout with addresses of KRaft controllers, as in DescribeQuorum from v2 on (KIP-853). They may be
hosts of brokers, and the proxy has no address for them: ``protocol/quorum.py`` removes them, and clients are offered no
other API that has them.
"""

ADDRESSES_FIRST: Final = frozenset((METADATA,))
"""APIs whose responses have the brokers first: the rest of the response need not be parsed."""

ADDRESSES_LAST: Final = frozenset((PRODUCE, FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE))
"""APIs whose responses have the brokers last, and hardly ever name one."""

ADMIN_CLUSTER_ACTIONS: Final = frozenset((27, 55, 57))
"""WriteTxnMarkers, DescribeQuorum and UpdateFeatures: marked as cluster actions in ApiKeys, yet admin clients send them
to brokers (``Admin.abortTransaction``).
"""

OBEYED_FROM: Final[dict[int, int]] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
    43: 0,  # ElectLeaders
    44: 0,  # IncrementalAlterConfigs
    45: 0,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    47: 0,  # OffsetDelete
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    64: 0,  # UnregisterBroker
    75: 0,  # DescribeTopicPartitions
}
"""The first version whose clients obey throttle_time_ms by themselves (KIP-219): ``shouldClientThrottle`` of Kafka's
response classes up to 4.3. Not listed: APIs whose field Java clients before 4.4 (KAFKA-20828) ignore.
"""
