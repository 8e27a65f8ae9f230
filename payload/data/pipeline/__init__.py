"""From a part of a data set to the batches of one rank."""
