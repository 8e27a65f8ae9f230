"""Data sets in memory and in record files, and the batches made from them."""
