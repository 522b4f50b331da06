"""Nsight Systems: SQLite exports, parquet directories, and reports through an installed nsys."""
