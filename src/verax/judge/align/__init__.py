"""Two networks side by side: are they the same function, and where do they part?"""
