"""The queue in SQL: how tasks enter it, are claimed, end, and what follows from that."""
