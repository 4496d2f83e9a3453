"""What each ATen operator means, one file per family: rows that `frontends.torch.table` gathers."""
