"""Logs of clocks, power, temperature and clock event reasons of GPUs: of `nvidia-smi`, `dcgmi dmon` and DCGM's exporter."""
