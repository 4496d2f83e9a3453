"""Programs on a GPU: what is launched there, its memory, and a GPU that this processor emulates."""
