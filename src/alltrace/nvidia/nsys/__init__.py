"""The recipes of `nsys recipe` by their own names, with their options, tables and columns, over ranks instead of files."""
