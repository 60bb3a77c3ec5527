"""What the fleet is doing, and whether that is well: from rows to words."""
