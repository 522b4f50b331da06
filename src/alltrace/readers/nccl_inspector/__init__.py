"""Reader of the files of NCCL Inspector."""
