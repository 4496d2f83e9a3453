"""Files: read without belief, written whole or not at all, known by their bytes."""
