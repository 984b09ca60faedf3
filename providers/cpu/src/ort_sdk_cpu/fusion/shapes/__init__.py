"""Shape arithmetic."""
