"""The admin client for brokers 0.8 to 3.9.

It describes topics, groups and the cluster by requests. The protocol of 0.8 has no requests to
create and delete topics, so the client does that through ZooKeeper on brokers of every version.
"""

from aiokafka08.admin.client import AIOKafkaAdminClient
from aiokafka08.admin.cluster_description import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from aiokafka08.admin.group_changes import GroupDeletion
from aiokafka08.admin.group_description import (
    GroupDescription,
    GroupDescriptions,
    MemberDescription,
)
from aiokafka08.admin.group_lag import (
    GroupLags,
    LogBounds,
    PartitionLag,
    PartitionOwner,
    StoredGroup,
    StoredGroupDescription,
    StoredGroupListing,
    StoredOffsets,
    lag_rows,
)
from aiokafka08.admin.new_topic import NewPartitions, NewTopic
from aiokafka08.admin.offset_reset import PlannedOffset, ShiftBy
from aiokafka08.admin.records_to_delete import RecordsToDelete
from aiokafka08.admin.topic_errors import DeletionErrors, TopicErrors

__all__ = [
    "AIOKafkaAdminClient",
    "BrokerDescription",
    "ClusterDescription",
    "DeletionErrors",
    "GroupDeletion",
    "GroupDescription",
    "GroupDescriptions",
    "GroupLags",
    "LogBounds",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "PartitionLag",
    "PartitionOwner",
    "PlannedOffset",
    "RecordsToDelete",
    "ShiftBy",
    "StoredGroup",
    "StoredGroupDescription",
    "StoredGroupListing",
    "StoredOffsets",
    "TopicDescription",
    "TopicErrors",
    "lag_rows",
]
