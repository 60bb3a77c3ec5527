"""Fleet beside other queues on one PostgreSQL server: the same tasks, the same durability, in the same run."""
