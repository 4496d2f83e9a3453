"""The arithmetic of matrix units: what GPUs compute in a product of matrices, bit for bit.

`conversions` says how numbers enter and leave a unit, `units` which units there are, `simulate`
runs steps and chains of steps, `routes` says how libraries split a product over K and adds the
parts, `bounds` gives ceiling, bias and standard deviation of the error, and `reproduction` asks
which route gives an output bit for bit. Knows arrays; nothing of graphs or verdicts may enter.
"""
