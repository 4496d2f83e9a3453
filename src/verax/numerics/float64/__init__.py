"""The canonical elementary functions of float64, written once over `Arith`, as float32's are.

What a float64 tensor promises is made of these, of +, -, *, /, square roots and FMA, each rounded
once, and of sums in stated orders: so NumPy and compiled code give the same bits on every machine.
The float64 meaning, by which float32 is judged, has nothing to do with them: it is NumPy's and the
C library's (`functions_meaning`), and each is a witness of the other.

Formulas are written with `Number`. No function branches, none uses FMA (which NumPy has to build
of forty operations), and none reads a table by an index: `Arith` has no gather. Errors come mainly
from the last rounding, because what precedes it is carried as an unevaluated sum of two numbers.
"""
