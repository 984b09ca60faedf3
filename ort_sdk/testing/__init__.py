"""The conformance kit for providers, and devices that find faults without hardware."""
