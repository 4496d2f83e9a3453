"""GPUs of NVIDIA: how targets name them, and the driver's calls."""
