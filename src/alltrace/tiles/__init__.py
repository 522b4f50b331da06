"""Levels of detail of a run: what any view of it costs is what its pixels cost, not what its events cost."""
