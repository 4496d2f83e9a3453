"""Matrix products: MatMul, Gemm, Einsum, attention, recurrent cells, Strassen, stored weights."""
