"""What was recorded, made ready to be replayed: who was there and how, and the seconds of each unit in one task.

Between the table and the kernel; must not know what is asked of the replay.
"""
