"""From a graph to native code: exact rewriting, lowering to kernel calls, one LLVM module."""
