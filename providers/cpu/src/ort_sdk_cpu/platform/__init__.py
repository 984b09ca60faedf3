"""The machine and its libraries: processor features, threads, optional libraries. Imports nothing else of the provider."""
