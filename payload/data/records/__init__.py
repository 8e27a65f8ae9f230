"""Images in TFRecord files: made, indexed, read."""
