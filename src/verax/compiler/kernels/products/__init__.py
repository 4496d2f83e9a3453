"""Products of matrices and attention, and how one step of a sum multiplies and adds."""
