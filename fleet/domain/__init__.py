"""The pure core: records, life cycles, arithmetic and decisions; time and randomness come in as arguments."""
