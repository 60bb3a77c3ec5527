"""Everything that touches the database; `interfaces` is what the rest of Fleet knows of it."""
