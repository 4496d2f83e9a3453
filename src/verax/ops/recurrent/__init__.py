"""Recurrent networks: RNN, GRU and LSTM."""
