"""What each operator means, one file per family; never how it runs.

Importing this package registers every operator in `verax.ir.operator.REGISTRY`. Modules whose name
is not a family (`common`, `windows.windows`, ...) hold what families share.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def __getattr__(name: str) -> type:
    """An operator by its name, as in `verax.ops.Conv(strides=(2, 2))`."""
    registry = importlib.import_module("verax.ir.operator").REGISTRY
    if name in registry:
        operator: type = registry[name]
        return operator
    raise AttributeError(f"there is no operator {name!r}; `verax ops` lists them")
