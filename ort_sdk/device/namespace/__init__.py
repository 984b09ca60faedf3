"""The array API standard over a device's arrays, so that the shared operators run on it."""
