"""Reader of the lines that NCCL and RCCL write under NCCL_DEBUG."""
