"""Several nodes judged together, because what passes between them was not shown.

`network` cuts a network at every shown value; `region` judges a piece by Monte Carlo (`sampler`)
or by derivatives (`adjoint`, `vjp*`), `quantized_steps` one that quantizes inside (`int8*`),
`precision_network` one in a coarser arithmetic. `budget` keeps all of it within the memory, and
`coverage` says how much was seen.
"""
