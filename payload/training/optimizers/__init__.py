"""Update weights from gradients."""
