"""What tasks touch, and the check of arrays against it."""
