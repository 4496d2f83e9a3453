"""Programs of Verax on an emulated processor, with no operating system: see `__main__`."""
