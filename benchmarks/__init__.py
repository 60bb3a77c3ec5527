"""Benchmarks of Fleet beside its peers and beside raw `sqlite3` loops: `scripts/bench`."""
