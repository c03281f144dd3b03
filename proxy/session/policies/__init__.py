"""The rules of requests, a module for each kind: what it is charged, and whether it goes now."""
