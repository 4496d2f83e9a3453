"""Data movement: views, copies, index maps, computed indices, Resize, GridSample, layouts."""
