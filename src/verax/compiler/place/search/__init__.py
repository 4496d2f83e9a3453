"""What kernels look for: chosen rows, boxes that survive, regions of interest."""
