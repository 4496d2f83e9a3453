"""Writes parameters.json: what MXNet itself says of each operator's parameters.

Run by hand where MXNet 1.9.1 is installed, after the other scripts; the tests read the file. It
holds {operator: {parameter: "type in MXNet's words = default as a symbol writes it"}} for the
operators of the stored networks; parameters without a default are left out.
"""

import ctypes
import json
import re
from pathlib import Path

import numpy as np

np.bool = bool  # MXNet 1.9.1 still uses this name
from mxnet.base import _LIB, check_call, py_str  # noqa: E402

HERE = Path(__file__).parent


MISDOCUMENTED = {"_npi_concatenate"}
"""Operators for which MXNet lists the parameters of others."""


def texts(count, pointers):
    return [py_str(pointers[i]) for i in range(count.value)]


def described(operator):
    """(names of arguments, their types) of an operator by any of its names; None: there is none."""
    handle = ctypes.c_void_p()
    if _LIB.NNGetOpHandle(operator.encode(), ctypes.byref(handle)):
        return None
    name, about, variable, kind = (ctypes.c_char_p() for _ in range(4))
    count = ctypes.c_uint()
    names, types, texts_ = (ctypes.POINTER(ctypes.c_char_p)() for _ in range(3))
    found = (name, about, count, names, types, texts_, variable, kind)
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(handle, *(ctypes.byref(f) for f in found)))
    return texts(count, names), texts(count, types)


def main():
    used = set()
    for name in ("operators.npz", "recurrent.npz", "numpy.npz", "names.npz"):
        with np.load(HERE / name) as stored:
            symbols = json.loads(stored["symbols"].tobytes())
        used |= {node["op"] for symbol in symbols.values() for node in symbol["nodes"]}
    found = {}
    for name in used - MISDOCUMENTED:
        about = described(name)
        if about is None:
            continue
        parameters = {}
        for argument, said in zip(*about):
            default = re.search(r"default=(.*)$", said)
            if default:
                kind = re.split(r" ?, ?optional", said)[0]
                parameters[argument] = f"{kind} = {default[1].strip(chr(39))}"
        found[name] = parameters
    (HERE / "parameters.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
