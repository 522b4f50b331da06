"""The profilers that can be wrapped: each builds its command for the version that is installed."""
