"""``sluice demo``: a first throttle on one machine, without a Kafka cluster and without Java.

A stand-in for a broker, Sluice in front of it as a process of its own, and two kafka-python producers. The proxy
uses none of this.
"""
