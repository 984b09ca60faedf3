"""ORT format, read without the flatbuffers package."""
