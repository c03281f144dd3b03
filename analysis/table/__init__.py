"""The usage table: its shape, its files as Arrow has them, scanning them in the workers, exchanging rows between tasks.

Must not know who writes a row or what is asked of it.
"""
