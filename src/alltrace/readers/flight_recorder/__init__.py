"""Reader of PyTorch's flight-recorder dumps and of NCCL Inspector's files."""
