"""What the machine is: processor features, threads, libraries. Imports nothing else of the provider."""
