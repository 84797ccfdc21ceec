"""Build, serve and validate draft/target pairs for speculative decoding."""

__version__ = "0.1.0"
