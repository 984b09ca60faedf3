"""What a user holds: values, devices, and descriptions of inputs and outputs."""
