"""What this machine has, and what of it may be used: processor, cores, memory, devices."""
