"""Worker processes: a supervisor, its keeper, and the workers that claim and execute."""
