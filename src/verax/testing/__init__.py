"""Assertions for anybody's tests: `verax.assert_correct` and `verax.assert_gradients`.

A meaning is an operator, a model, or a function that can be evaluated in float64. Networks of known
operators go to the judge; for other functions a bound is derived by running them under random
rounding. Nothing here may need pytest.
"""
