"""Programs of PyTorch as cases of a hunt: drawn, compiled by torch.compile, judged, made small."""
