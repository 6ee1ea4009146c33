"""The admin client for brokers 0.8 to 3.9.

It describes topics, groups and the cluster by requests, and creates and deletes topics through
ZooKeeper, because the protocol of 0.8 has no requests for that.
"""

from aiokafka08.admin.client import AIOKafkaAdminClient, TopicErrors
from aiokafka08.admin.new_topic import NewPartitions, NewTopic

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "TopicErrors"]
