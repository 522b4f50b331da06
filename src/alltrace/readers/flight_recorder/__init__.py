"""Reader of PyTorch's flight-recorder dumps."""
