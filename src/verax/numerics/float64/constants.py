"""Constants in two or more float64 numbers each; tests/numerics/test_float64.py derives them."""

LN2 = (0.6931471805598903, 5.497923018708371e-14)
"""log 2: the first has 42 bits, so that its product with an exponent is exact."""
LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
"""1 / log 2."""
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
QUARTER_PI = (HALF_PI[0] / 2, HALF_PI[1] / 2)
PI = (HALF_PI[0] * 2, HALF_PI[1] * 2)
HALF_PI_PARTS = (
    1.5707963267341256,
    6.077100506303966e-11,
    2.0222662487111665e-21,
    8.4784276603689e-32,
)
"""pi / 2: three numbers of 33 bits, whose products with integers below 2^20 are exact; the rest."""
ERF_OF_ONE = (0.8427007929497149, -2.4801011789118602e-17)
TWO_THIRDS = (2.0 / 3.0, 3.700743415417188e-17)
ROUND = 1.5 * 2.0**52
"""Adding it rounds to an integer, which is then in the low bits of the representation."""
ONE_BITS = 0x3FF << 52
"""The representation of 1."""
TINY = 2.0**-28
"""Below it odd functions of slope 1 at 0, and their inverses, are their argument, rounded."""
