"""PyTorch as a subject: its files, modules and programs, compiled or eager."""
