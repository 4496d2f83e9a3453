"""Integer networks: exact sums, bytes, softmax, lengths, quantization while a network runs."""
