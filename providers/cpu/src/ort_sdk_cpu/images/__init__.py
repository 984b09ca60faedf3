"""Compiled code without a compiler: object files become images, which are kept in files and mapped into memory."""
