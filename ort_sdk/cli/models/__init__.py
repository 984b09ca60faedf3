"""What commands make of a model, and what they show of it."""
