"""A runtime with injected faults, for `verax hunt`: `faulty_runtime.py FAULT MODEL INPUT OUTPUT`.

It computes with the reference evaluator of the package onnx. FAULT: "none", "alpha" (LeakyRelu
ignores its attribute), "crash" or "hang" (at LeakyRelu), "memory" (LeakyRelu keeps too much),
"refuse" (LeakyRelu is turned down).
"""

import os
import signal
import sys
import time

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

FAULT, MODEL, INPUT, OUTPUT = sys.argv[1:]
DEFAULT_ALPHA = 0.01


class LeakyRelu(OpRun):
    op_domain = ""

    def _run(self, x, alpha=DEFAULT_ALPHA):
        if FAULT == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAULT == "hang":
            time.sleep(600)
        if FAULT == "memory":
            self.kept = np.ones(200_000_000, np.uint8)
            time.sleep(600)
        if FAULT == "refuse":
            sys.exit("this runtime is out of luck with LeakyRelu")
        slope = np.array(DEFAULT_ALPHA if FAULT == "alpha" else alpha, x.dtype)
        return (np.where(x < 0, x * slope, x),)


evaluator = ReferenceEvaluator(MODEL, new_ops=[LeakyRelu])
inputs = dict(np.load(INPUT))
with np.errstate(all="ignore"):
    results = evaluator.run(None, {name: inputs[name] for name in evaluator.input_names})
np.savez(OUTPUT, **dict(zip(evaluator.output_names, results)))
