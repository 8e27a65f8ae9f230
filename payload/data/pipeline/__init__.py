"""The pipeline from a split of a data set to the batches of one rank."""
