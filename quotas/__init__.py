"""Kafka's quota arithmetic and policy, sans-I/O.

Owns entities, precedence, sampled rates, the token bucket, throttle times, the engine and the delay queue. Time is an
argument. It must not know sockets, loops, the clock or Kafka's bytes; only ``quotas.stores`` reads files.
"""
