"""Quotas in ZooKeeper, in the tree that Kafka keeps them in up to 3.9."""
