"""The passes of a level, run on a network and on its subgraphs, and the recipe that follows."""
