"""What each operator means, one file per family; never how it runs.

Importing this package registers every operator in `verax.ir.operator.REGISTRY`. Modules whose name
is not a family (`common`, `windows.windows`, ...) hold what families share.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
