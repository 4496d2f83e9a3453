"""Writes recurrent.npz as make_operators.py does: MXNet's own kernels fail on RNN (they count its
inputs wrongly), so these answers are oneDNN's, which must be chosen before MXNet starts."""

import os
from pathlib import Path

os.environ["MXNET_MKLDNN_ENABLED"] = "1"
import detector_cases
import make_operators

if __name__ == "__main__":
    cases = detector_cases.recurrent(make_operators.S, make_operators.x)
    make_operators.write(Path(__file__).with_name("recurrent.npz"), cases)
