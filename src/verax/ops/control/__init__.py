"""Parts of a network that are chosen or repeated while it runs."""
