"""Quotas in ZooKeeper, in the tree that Kafka uses up to 3.9."""
