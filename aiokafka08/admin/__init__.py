"""The admin client: what brokers 0.8 – 3.9 tell about topics and the cluster, and topics made
through ZooKeeper, since the protocol of these brokers has no request for it."""

from aiokafka08.admin.client import AIOKafkaAdminClient, TopicErrors
from aiokafka08.admin.new_topic import NewPartitions, NewTopic

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "TopicErrors"]
