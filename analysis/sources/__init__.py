"""Where documents come from: a topic, through the JVM's connector or through Python alone, or files.

Each source gives a streaming DataFrame of ``place.SOURCE``.
"""
