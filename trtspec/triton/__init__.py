"""Model repository, server and client of Triton Inference Server."""
