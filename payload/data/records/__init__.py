"""Make, index and read TFRecord files of images."""
