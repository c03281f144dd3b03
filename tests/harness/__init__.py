"""Real Kafka clusters, the real proxy and real clients, for the tests, the demo and the benchmarks.

Everything runs on loopback on free ports and is bounded in time; a server is a process group of its own that is ended
by its id. Nothing here knows pytest. Facts about the programs started here (classes, properties, start-up) belong here;
what the proxy ought to do with them belongs to the tests. For unit tests there are stand-ins
for brokers, pollers and a clock.
"""
