"""Programs outside of the process: the cache on disk, `.vx` files, what is written beside them."""
