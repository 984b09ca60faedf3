"""The suites of the kit, one for each part of the contract."""
