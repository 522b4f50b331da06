"""PyTorch profiler (Kineto): traces as JSON, plain or compressed."""
