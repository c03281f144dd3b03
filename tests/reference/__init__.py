"""What Kafka does with quotas where no product code needs it (yet), composed from the primitives of ``quotas``.

The product itself is not a broker: it neither accepts connections on Kafka's terms, nor un-records fetches, nor
keeps a ZooKeeper tree. These models hold the primitives to Kafka's behaviour there all the same.
"""
