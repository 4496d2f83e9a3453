"""The judge measured on random networks and planted mistakes; `README.md` says what must hold."""
