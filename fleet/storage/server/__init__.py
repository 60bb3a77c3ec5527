"""What a PostgreSQL server needs that a file does not: sessions, pools, silence, notifications, roles."""
