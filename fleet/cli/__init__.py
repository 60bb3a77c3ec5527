"""Command lines: what they take, what they print, what they exit with."""
