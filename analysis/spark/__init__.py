"""Bulk captures on Spark: the rows of one machine, from any number of them."""
