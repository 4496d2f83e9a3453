"""Graphs as files of other formats. It may use `ops` and `ir`, and knows no frontend."""
