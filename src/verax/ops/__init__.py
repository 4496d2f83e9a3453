"""What each operator means, one file per family; never how it runs.

Importing this package registers every operator in `verax.ir.operator.REGISTRY`. Modules whose name
is not a family (`common`, `windows`, ...) hold what families share.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
