"""Times of whole networks, side by side with other runtimes.

Every engine lives in a process of its own at a fixed thread count; the processes take turns, round
after round, so that what disturbs the machine disturbs all of them alike. This room measures; it
judges nothing (that is the judge's) and prints nothing (that is the report's).

worker.py   the process of one engine: `python -m verax.bench.worker`
rounds.py   starts the workers, lets them take turns, assembles the record

How an engine loads a model and runs it says `runners.engines`; which there are, the registry of
runners. This file imports nothing, for the sake of the workers' memory.
"""
