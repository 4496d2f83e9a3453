"""What the frontends share: the importer that drives every table, `Table` and what its rows work
with, the ledger, and the formulas that several formats have.

A format's own folder keeps its reader and what it alone does.
"""
