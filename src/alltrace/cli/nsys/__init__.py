"""NVIDIA's command lines of `nsys stats`, `nsys analyze`, `nsys recipe` and `nsys export`, answered by alltrace."""
