"""One value or one node: numbers in, a decision out.

`criterion` knows neither graphs nor operators. `local` judges a node on the inputs that the subject
itself gave it, with `orders` (other orders of summation), `precision` (coarser arithmetics), `ties`
(choices that rounding tips) and `pieces` (nodes that do not fit the memory). `blindness` says when
agreement proves nothing.
"""
