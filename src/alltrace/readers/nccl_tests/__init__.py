"""Reader of what the programs of nccl-tests and rccl-tests print, and of their JSON."""
