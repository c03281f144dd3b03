"""Unmodified Kafka clients, each a program of its own.

A task (tasks.py) goes in as arguments, events come out as JSON lines; process.py runs one, program.py is what the
Python ones share, and each other module, and Client.java, is one client library.
"""
