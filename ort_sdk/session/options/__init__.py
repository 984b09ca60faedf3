"""What a user asks for: session and run options, and the settings that the stages take from them."""
