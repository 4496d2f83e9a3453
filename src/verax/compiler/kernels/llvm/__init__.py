"""How kernels are written: text and types of LLVM, functions, object files, threads."""
