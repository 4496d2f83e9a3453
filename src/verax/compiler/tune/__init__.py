"""Schedules that measuring found: searched kernel by kernel, kept in a history, looked up again.

Nothing here can change a number: a schedule decides speed only, every candidate's bits are compared
with those of the schedule chosen by rule before its time counts, and what a history says is taken
only if the kernel admits it.
"""
