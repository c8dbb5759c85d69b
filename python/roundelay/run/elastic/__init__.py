"""`roundelayrun --min-np N`: a job whose ranks come and go while it trains.

The launcher hands out generations: a number, and the workers that are its ranks. `membership` decides, and is
pure; `discovery` knows the hosts; `worker` starts one process on a host; `driver` listens and does what was
decided. A worker's program talks to it through run/agent/member.py.
"""
