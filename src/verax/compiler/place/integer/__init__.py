"""Integer networks: exact sums, bytes, softmax, lengths, quantisation while a network runs."""
