"""Logs of GPU clocks, power, temperature, clock event reasons: of `nvidia-smi`, `dcgmi dmon` and DCGM's exporter."""
